"""JSON over HTTP with time-outs, retries and bounded answers; what endpoints of models speak."""

import email.utils
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jaxmem.common import check_number, check_size
from jaxmem.common.safetensors_header import short

RETRIED = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""Statuses after which the same request may succeed."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_MOST_BYTES = 2**26  # of an answer

_Found = TypeVar("_Found")


class EndpointError(ValueError):
    """An endpoint that cannot be reached, refuses, or answers what cannot be understood."""


class _RetryError(Exception):
    """Why a try failed, and how long the server wants us to wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class JsonClient:
    """Posts JSON to one server, again if it fails for a reason that may pass.

    Attributes:
      url: of the API, without a path of its own.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 120.0,
        attempts: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
          url: of the API, such as http://localhost:8000/v1.
          key: sent as bearer token; it goes to no other server, redirects are not followed.
          timeout_s: for the connection and between two pieces of an answer.
          attempts: tries at most, at least 1.
          sleep: waits between two tries.

        Raises:
          ValueError: if the URL is none, or httpx is not installed.
        """
        try:
            import httpx
        except ImportError as error:
            raise ValueError("an endpoint needs httpx: pip install 'jaxmem[agents]'") from error
        self.url = _checked_url(url)
        check_number("timeout_s", timeout_s, 1e-3, 86_400.0, scalar=True)
        self._attempts = check_size("attempts", attempts)
        self._sleep = sleep
        self._httpx = httpx
        secret = (key or "").strip()
        if not (secret.isascii() and secret.isprintable()) or " " in secret:
            raise ValueError("key: expected plain ASCII text in one line, got something else")
        self._secret = secret
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        self._client = httpx.Client(headers=headers, timeout=timeout_s)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send an object, and receive one.

        Args:
          path: below the URL.
          body: JSON object.

        Returns:
          The answer.

        Raises:
          EndpointError: if all tries fail, or one for a reason that will not pass.
        """

        def answer(lines: Iterator[bytes]) -> dict[str, Any]:
            return _object(b"".join(lines))

        return self._tried(path, body, answer)

    def events(
        self,
        path: str,
        body: Mapping[str, Any],
        gather: Callable[[Iterator[dict[str, Any]]], _Found],
    ) -> _Found:
        """Send an object, and receive a stream of server-sent events.

        Args:
          path: below the URL.
          body: JSON object.
          gather: makes the result of the events; called anew at each try.

        Returns:
          What it made.

        Raises:
          EndpointError: as `post`.
        """
        return self._tried(path, body, lambda pieces: gather(_events(pieces)))

    def _tried(
        self,
        path: str,
        body: Mapping[str, Any],
        answer: Callable[[Iterator[bytes]], _Found],
    ) -> _Found:
        url = f"{self.url}/{path}"
        try:
            content = json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise EndpointError(
                f"{url}: expected text of Unicode characters, got {error}"
            ) from error
        for attempt in range(self._attempts):
            try:
                return self._once(url, content, answer)
            except _RetryError as error:
                failed = error
            if attempt + 1 < self._attempts:
                wait_s = min(_FIRST_WAIT_S * 2.0**attempt, _LONGEST_WAIT_S)
                wait_s *= (
                    0.5 + 0.5 * random.random()
                )  # so that many clients do not come back as one
                self._sleep(min(max(wait_s, failed.wait_s or 0.0), _LONGEST_WAIT_S))
        tries = f"{self._attempts} tries" if self._attempts > 1 else "one try"
        raise EndpointError(f"{url}: no answer after {tries}: {failed}")

    def _safe(self, told: str) -> str:
        """What a server says, without the key should it repeat it."""
        return told.replace(self._secret, "[key]") if self._secret else told

    def _once(
        self, url: str, content: bytes, answer: Callable[[Iterator[bytes]], _Found]
    ) -> _Found:
        httpx = self._httpx
        headers = {"content-type": "application/json"}
        try:
            with self._client.stream("POST", url, content=content, headers=headers) as response:
                pieces = _bounded(response.iter_bytes())
                if response.status_code in RETRIED:
                    told = f"status {response.status_code}: {self._safe(_told(pieces))}"
                    raise _RetryError(told, _retry_after(response.headers.get("retry-after")))
                if response.status_code != 200:
                    told = self._safe(_told(pieces))
                    raise EndpointError(f"{url}: status {response.status_code}: {told}")
                return answer(pieces)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _RetryError(f"{type(error).__name__}: {short(str(error))[1:-1]}") from error
        except httpx.InvalidURL as error:
            raise EndpointError(f"{url}: expected a URL, got {error}") from error


def _checked_url(url: str) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is not None and (parts.username or parts.password or parts.query):
        raise ValueError("expected a URL without user, password and query: keys go elsewhere")
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected a URL such as http://localhost:8000/v1, got {short(url)}")
    return url.rstrip("/").removesuffix("/chat/completions").removesuffix("/embeddings")


def _bounded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > _MOST_BYTES:
            raise EndpointError(f"expected an answer of at most {_MOST_BYTES:,} bytes, got more")
        yield piece


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _RetryError(f"expected JSON, got {short(content[:60])}") from error
    if not isinstance(found, dict):
        raise _RetryError(f"expected a JSON object, got {short(found)}")
    return found


def _events(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The data of server-sent events up to [DONE], without which the stream was cut."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip() == b"data: [DONE]":
                return
            if line.startswith(b"data:") and line[5:].strip():
                yield _object(line[5:])
    raise _RetryError("expected a stream that ends with [DONE], it was cut")


def _told(pieces: Iterator[bytes]) -> str:
    """What a server says of an error, in one line."""
    content = b"".join(pieces)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = content.decode("utf-8", "replace")
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    text = " ".join((found if isinstance(found, str) else short(found)).split())
    shown = "".join(c if c.isprintable() else "·" for c in text[:300])
    return shown or "no reason given"


def _retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
