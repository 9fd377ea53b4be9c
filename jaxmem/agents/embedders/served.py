"""An embedder behind the embeddings protocol: vLLM, Ollama, llama.cpp, hosted ones."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmem.agents.embedders.embedder import unit
from jaxmem.agents.endpoint import KEY
from jaxmem.agents.http_json import EndpointError, JsonClient
from jaxmem.common.safetensors_header import short

_AT_ONCE = 64


class ServedEmbedder:
    """Vectors that a server makes; the first answer says how long they are.

    Attributes:
      name: of the model.
    """

    def __init__(self, url: str, model: str, *, key: str | None = None, **http: Any) -> None:
        """Prepare; nothing is sent before a vector is wanted.

        Args:
          url: of the API, such as http://localhost:8000/v1.
          model: its name there.
          key: of the API; by default that of the environment variable JAXMEM_API_KEY.
          http: timeout_s, attempts and sleep of `JsonClient`.

        Raises:
          ValueError: if the URL is none, or httpx is not installed.
        """
        self.name = model
        self._client = JsonClient(url, os.environ.get(KEY) if key is None else key, **http)
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Numbers of a vector; asks the server if it has not answered yet."""
        if self._size is None:
            self.embed(["size"])
        assert self._size is not None
        return self._size

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of some texts.

        Args:
          texts: N of them.

        Returns:
          float32 [N, D].

        Raises:
          EndpointError: if the server cannot be reached, refuses or answers nonsense.
        """
        parts = [self._embed(texts[i : i + _AT_ONCE]) for i in range(0, len(texts), _AT_ONCE)]
        return unit(np.concatenate(parts)) if parts else np.zeros((0, self.size), np.float32)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        # A server refuses an empty text; its vector is 0 here.
        asked = [i for i, text in enumerate(texts) if text.strip()]
        if not asked:
            return np.zeros((len(texts), self.size), np.float32)
        body = {"model": self.name, "input": [texts[i] for i in asked]}
        answer = self._client.post("embeddings", body)
        vectors = _vectors(answer.get("data"), len(asked), self._client.url)
        if self._size is None:
            self._size = vectors.shape[1]
        if vectors.shape[1] != self._size:
            raise EndpointError(
                f"{self._client.url}: expected vectors of {self._size} numbers, got "
                f"{vectors.shape[1]}"
            )
        found = np.zeros((len(texts), self._size), np.float32)
        found[asked] = vectors
        return found


def _vectors(data: Any, count: int, where: str) -> np.ndarray:
    """Embeddings of an answer in the order asked for."""
    rows = data if isinstance(data, list) and all(isinstance(row, dict) for row in data) else []
    try:
        ordered = sorted(rows, key=lambda row: row.get("index", 0))
        found = np.array([row["embedding"] for row in ordered], np.float32)
    except (KeyError, TypeError, ValueError):
        found = np.zeros(0, np.float32)
    if found.ndim != 2 or len(found) != count or not np.isfinite(found).all() or not found.size:
        raise EndpointError(f"{where}: expected {count} embeddings, got {short(data)}")
    return found
