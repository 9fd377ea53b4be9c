"""A real HTTP server on the loopback that speaks the chat completions protocol, faults included."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What the server answers once: a status, a body, more headers, and where it hangs up."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None


class Request(NamedTuple):
    """What a client sent."""

    path: str
    headers: dict[str, str]
    body: Any


def chat(content: str | None = None, *calls: tuple[str, str], **more: Any) -> Answer:
    """A good answer."""
    written = [
        {"id": f"id{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content} | ({"tool_calls": written} if calls else {})
    body = {"choices": [{"index": 0, "message": message}], **more}
    return Answer(json.dumps(body).encode())


@contextmanager
def server(
    answers: list[Answer] | Callable[[Any], Answer],
) -> Iterator[tuple[str, list[Request]]]:
    """Answers one after another, or by a rule; yields the URL and what was asked."""
    asked: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            found = answers(body) if callable(answers) else answers[len(asked) - 1]
            self.send_response(found.status)
            for name, value in found.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body if found.cut is None else found.body[: found.cut])
            if found.cut is not None:
                self.close_connection = True

        def log_message(self, *arguments: Any) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}/v1", asked
    finally:
        made.shutdown()
        made.server_close()
