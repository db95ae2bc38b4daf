"""A server of somebody else's, which takes webhooks: notes what comes and answers as it is told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`answer` gives the status of each message; `held` makes those at /slow wait until it is set."""

    url: str = ""
    answer: Callable[[Received], int] = lambda _: 204
    extra: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    held: Event = field(default_factory=Event)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            one = Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            receiver.received.append(one)
            if self.path == "/slow":
                receiver.held.wait(60)
            self.send_response(receiver.answer(one))
            for name, value in {**receiver.extra, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        receiver.held.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
