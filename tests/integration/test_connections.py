"""Who opens a connection and asks nothing does not hold it for long; who asks is not hurried."""

import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.routes.connections import PatientProtocol
from tests.serving import serving

IN_TIME_S = 20.0


class Hasty(PatientProtocol):
    ask_within_s = 0.2


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body, once it is all there."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with serving(echo, http=Hasty, lifespan="off") as url:
        parsed = httpx.URL(url)
        yield parsed.host, parsed.port or 0


@pytest.fixture
def line(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=IN_TIME_S) as line:
        yield line


def ask(line: socket.socket) -> bytes:
    line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return line.recv(65536)


def test_a_connection_that_says_nothing_is_closed(line: socket.socket) -> None:
    assert line.recv(1) == b""


def test_one_that_never_ends_its_headers_is_closed(line: socket.socket) -> None:
    line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert line.recv(1) == b""


def test_saying_a_little_now_and_then_gains_no_time(line: socket.socket) -> None:
    line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    until = time.monotonic() + IN_TIME_S
    line.settimeout(0.05)
    while time.monotonic() < until:
        try:
            line.sendall(b"a")
            assert line.recv(1) == b""
            return
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return
    pytest.fail("it is still open")


def test_a_slow_body_is_waited_for(line: socket.socket) -> None:
    line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
    line.settimeout(4 * Hasty.ask_within_s)
    with pytest.raises(TimeoutError):
        line.recv(1)
    line.settimeout(IN_TIME_S)
    line.sendall(b"b")
    with line.makefile("rb") as answer:
        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"


def test_a_next_request_may_begin_late_and_must_end_soon(line: socket.socket) -> None:
    assert ask(line).startswith(b"HTTP/1.1 200")
    line.settimeout(4 * Hasty.ask_within_s)
    with pytest.raises(TimeoutError):  # it is kept alive meanwhile
        line.recv(1)
    line.settimeout(IN_TIME_S)
    assert ask(line).startswith(b"HTTP/1.1 200")
    line.sendall(b"GET / HT")
    assert line.recv(1) == b""
