"""A host of small pictures that is as slow, as broken and as busy as hosts on the internet are."""

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from demo.pictures import as_jpeg, draw, product_for

PICTURES = 60
SLOWEST_S = 0.8
PAGE = b"<!doctype html><title>Robot check</title>"


@cache
def picture(number: int) -> bytes:
    seed = number % PICTURES
    return as_jpeg(draw(product_for(seed, held_out=False), seed))


class Host(ThreadingHTTPServer):
    """`/BATCH/pN.jpg` is picture N wherever it is asked for; an `hurried` host serves all at once."""

    daemon_threads = True
    hurried = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A fetcher that was killed hangs up: nothing to tell."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Host)
        hurried = self.server.hurried
        name = self.path.rsplit("/", 1)[1].removesuffix(".jpg")
        if not hurried:
            time.sleep(zlib.crc32(self.path.encode()) % 1000 / 1000 * SLOWEST_S)
        match name:
            case "gone":
                self._send(404, b"")
            case "page":
                self._send(200, PAGE)
            case "cut":
                self._send(200, picture(0)[:2000])
            case "busy" if not hurried:
                self._send(503, b"")
            case "busy":
                self._send(200, picture(0))
            case _:
                self._send(200, picture(int(name.removeprefix("p"))))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "30")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving_pictures() -> Iterator[Host]:
    host = Host(("127.0.0.1", 0), _Answer)
    Thread(target=host.serve_forever, daemon=True).start()
    try:
        yield host
    finally:
        host.shutdown()
        host.server_close()
