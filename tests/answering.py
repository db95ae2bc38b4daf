"""A small HTTP server that gives the answers it was told to, and keeps what it was sent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Self


@dataclass(frozen=True)
class Reply:
    """`cut` breaks the connection off before the body is whole."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True)
class Sent:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = Callable[[Sent], Reply]
GONE = Reply(404, b'{"error": {"message": "No batch found."}}')


def reply(status: int, body: object, **headers: str) -> Reply:
    return Reply(status, json.dumps(body).encode(), headers)


class Api:
    """Serves while its block lasts: what `answer` says, else the answers told beforehand, in turn."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.sent: list[Sent] = []
        self._left: list[Reply] = []
        self._lock = Lock()
        self._answer = answer or (lambda _: self._left.pop(0) if self._left else GONE)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._take))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def answers(self, *replies: Reply) -> None:
        self._left = list(replies)

    def calls(self, method: str, path: str) -> list[Sent]:
        """The requests of this method to this path, its query left aside."""
        return [sent for sent in self.sent if (sent.method, sent.path.partition("?")[0]) == (method, path)]

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, sent: Sent) -> Reply:
        with self._lock:
            self.sent.append(sent)
            return self._answer(sent)


def _handler(take: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = take(Sent(self.command, self.path, dict(self.headers), self._body()))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) + answer.cut))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.cut

        do_POST = do_DELETE = do_GET

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            blocks: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                blocks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(blocks)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
