"""The downloader against a real server on the loopback interface, with the habits of bad ones."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from app.download import Downloader, resolve
from app.errors import InvalidWork, TransientWork, WorkError
from app.guard import FetchPolicy
from app.http_exchange import DirectTransport

TLS = Path(__file__).parents[1] / "data" / "tls"
HOST = "pictures.example.com"
PICTURE = b"picture" * 10_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PICTURE) + PICTURE

Answer = Callable[[socket.socket], None]


class Server:
    """Accepts connections one by one and lets a function answer each; keeps what was asked."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[bytes] = []
        self._answer = answer
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._converse(connection)

    def _converse(self, plain: socket.socket) -> None:
        connection = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
        with connection:
            self.asked.append(connection.recv(65_536))
            self._answer(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(answer: Answer, tls: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(answer, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def says(data: bytes) -> Answer:
    return lambda connection: connection.sendall(data)


def downloader(
    server: Server,
    *,
    total_s: float = 5,
    tls: ssl.SSLContext | None = None,
    addresses: tuple[str, ...] = ("127.0.0.1",),
) -> Downloader:
    """One for which a public name leads to the server."""
    return Downloader(
        policy=FetchPolicy(allow_hosts=(f"{HOST}:{server.port}",)),
        max_bytes=10**6,
        max_redirects=3,
        total_s=total_s,
        transport=DirectTransport(connect_s=2, read_s=1, tls=tls),
        resolver=lambda _host, _port: addresses,
    )


def fetch(server: Server, target: str = "/x.png", *, total_s: float = 5) -> bytes:
    return downloader(server, total_s=total_s).fetch(f"http://{HOST}:{server.port}{target}")


def failure(server: Server, *, total_s: float = 5) -> WorkError:
    with pytest.raises(WorkError) as caught:
        fetch(server, total_s=total_s)
    return caught.value


def test_a_picture_is_fetched(serve: Callable[..., Server]) -> None:
    assert fetch(serve(says(OK))) == PICTURE


def test_the_request_names_the_host_and_keeps_the_target(serve: Callable[..., Server]) -> None:
    server = serve(says(OK))
    fetch(server, "/it%27s%7Eok%21.png?sig=%2B%2f#top")
    lines = server.asked[0].split(b"\r\n")
    assert lines[0] == b"GET /it%27s%7Eok%21.png?sig=%2B%2f HTTP/1.1"
    assert f"Host: {HOST}:{server.port}".encode() in lines
    assert [line for line in lines if line.startswith(b"User-Agent: vqueue/")]
    assert len([line for line in lines if line.lower().startswith((b"host:", b"accept-encoding:"))]) == 2


def test_a_chunked_body_is_fetched(serve: Callable[..., Server]) -> None:
    chunks = b"7\r\npicture\r\n4;x=y\r\nmore\r\n0\r\n\r\n"
    assert (
        fetch(serve(says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)))
        == b"picturemore"
    )


def test_a_body_without_length_ends_with_the_connection(serve: Callable[..., Server]) -> None:
    assert fetch(serve(says(b"HTTP/1.0 200 OK\r\n\r\npicture"))) == b"picture"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npicture",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\npicture",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\npicture\r\n",
    ],
)
def test_a_body_that_ends_early_may_be_tried_again(serve: Callable[..., Server], answer: bytes) -> None:
    error = failure(serve(says(answer)))
    assert isinstance(error, TransientWork)
    assert error.code == "incomplete_body"


def test_a_reset_connection_may_be_tried_again(serve: Callable[..., Server]) -> None:
    def reset(connection: socket.socket) -> None:
        connection.sendall(OK[:100])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    error = failure(serve(reset))
    assert isinstance(error, TransientWork)
    assert error.code in ("connection_lost", "incomplete_body")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200])
def test_what_is_not_http_may_be_tried_again(serve: Callable[..., Server], answer: bytes) -> None:
    error = failure(serve(says(answer)))
    assert isinstance(error, TransientWork)
    assert error.code in ("connection_lost", "bad_response")


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
def test_a_server_that_drips_cannot_hold_a_thread(serve: Callable[..., Server], head: bytes) -> None:
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        while not stop.wait(0.05):
            connection.sendall(b"1")

    started = time.monotonic()
    error = failure(serve(drip), total_s=0.5)
    stop.set()
    assert isinstance(error, TransientWork)
    assert error.code == "timeout"
    assert time.monotonic() - started < 3


def test_a_silent_server_is_left_after_the_read_timeout(serve: Callable[..., Server]) -> None:
    stop = threading.Event()

    def say_nothing(connection: socket.socket) -> None:
        stop.wait(20)

    error = failure(serve(say_nothing), total_s=30)
    stop.set()
    assert (error.code, HOST in error.message) == ("timeout", True)


def test_a_closed_port_may_be_tried_again() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    impatient = Downloader(
        policy=FetchPolicy(allow_hosts=(f"127.0.0.1:{port}",)),
        max_bytes=9,
        max_redirects=0,
        total_s=5,
        transport=DirectTransport(connect_s=2, read_s=1),
    )
    with pytest.raises(TransientWork, match="refused"):
        impatient.fetch(f"http://127.0.0.1:{port}/")


def test_the_next_address_is_tried_where_one_does_not_answer(serve: Callable[..., Server]) -> None:
    server = serve(says(OK))
    patient = downloader(server, addresses=("::1", "127.0.0.1"))
    assert patient.fetch(f"http://{HOST}:{server.port}/") == PICTURE


def test_tls_is_made_for_the_name_while_the_connection_goes_to_the_address(
    serve: Callable[..., Server],
) -> None:
    server = serve(says(OK), server_tls())
    trusting = ssl.create_default_context(cafile=str(TLS / "certificate.pem"))
    assert downloader(server, tls=trusting).fetch(f"https://{HOST}:{server.port}/x") == PICTURE


def test_a_certificate_that_does_not_hold_is_refused(serve: Callable[..., Server]) -> None:
    server = serve(says(OK), server_tls())
    with pytest.raises(InvalidWork, match="certificate"):
        downloader(server).fetch(f"https://{HOST}:{server.port}/x")


def test_a_server_without_tls_is_told_apart(serve: Callable[..., Server]) -> None:
    server = serve(says(OK))
    with pytest.raises(TransientWork, match="tls"):
        downloader(server).fetch(f"https://{HOST}:{server.port}/x")


def test_the_systems_resolver_gives_addresses_and_refuses_names_that_do_not_exist() -> None:
    assert "127.0.0.1" in resolve("localhost", 80)
    with pytest.raises(WorkError) as caught:
        resolve("no-such-host.invalid", 80)
    assert caught.value.code == "dns"


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    return context
