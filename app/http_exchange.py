"""One HTTP exchange with an address that was checked, under a deadline that no server can stretch."""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from app.errors import InvalidWork, TransientWork, WorkError
from app.guard import Url

_PIECE = 65_536  # bytes read at once


class Deadline:
    """The end of a whole exchange, redirects included; every wait asks it how long is left."""

    def __init__(
        self,
        total_s: float,
        *,
        what: str = "The image was not downloaded",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_s = total_s
        self._what = what
        self._clock = clock
        self._ends_at = clock() + total_s

    def wait(self, longest_s: float) -> float:
        """Seconds for the next wait; raises TransientWork `timeout` where none are left."""
        left = self._ends_at - self._clock()
        if left <= 0:
            raise TransientWork("timeout", f"{self._what} within {self.total_s:g} s.")
        return min(left, longest_s)


@dataclass(frozen=True)
class Reply:
    """A response whose body is still on the wire."""

    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: Iterator[bytes]
    length: int | None = None  # of the body, where the server says it

    def header(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.headers if key.lower() == name.lower())


class Transport(Protocol):
    """Sends a GET for `url` to one of `addresses`, or a POST of `body`; in its context the reply is open."""

    def __call__(
        self,
        url: Url,
        addresses: tuple[str, ...],
        *,
        headers: Mapping[str, str],
        deadline: Deadline,
        body: bytes | None = None,
    ) -> AbstractContextManager[Reply]: ...


class DirectTransport:
    """Connects to the given addresses only; the URL's name goes into the Host header and the TLS handshake.

    Proxy settings of the environment are not followed: a proxy would look the name up again by itself.
    Raises TransientWork (timeout, refused, unreachable, tls, connection_lost, bad_response, incomplete_body)
    and InvalidWork (tls, for a certificate that does not hold).
    """

    def __init__(self, *, connect_s: float, read_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._connect_s = connect_s
        self._read_s = read_s
        self._tls = tls or ssl.create_default_context()

    @contextmanager
    def __call__(
        self,
        url: Url,
        addresses: tuple[str, ...],
        *,
        headers: Mapping[str, str],
        deadline: Deadline,
        body: bytes | None = None,
    ) -> Iterator[Reply]:
        with _translated(url.host), self._connected(url, addresses, deadline) as plain:
            stream = _DeadlineStream(self._encrypted(plain, url, deadline), deadline, self._read_s)
            try:
                yield _exchange(stream, url, headers, body)
            finally:
                stream.hang_up()

    def _connected(self, url: Url, addresses: tuple[str, ...], deadline: Deadline) -> socket.socket:
        """A connection to the first address that takes one."""
        failure: OSError = ConnectionRefusedError("no address")
        for address in addresses:
            try:
                return socket.create_connection((address, url.port), timeout=deadline.wait(self._connect_s))
            except OSError as error:
                failure = error
        raise _unreachable(url.host, failure) from failure

    def _encrypted(self, plain: socket.socket, url: Url, deadline: Deadline) -> socket.socket:
        if url.scheme == "http":
            return plain
        plain.settimeout(deadline.wait(self._connect_s))
        return self._tls.wrap_socket(plain, server_hostname=url.host)


class _DeadlineReader(io.RawIOBase):
    """Every single receive is bounded by the read timeout and by what is left of the deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline, read_s: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._read_s = read_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._connection.settimeout(self._deadline.wait(self._read_s))
        return self._connection.recv_into(buffer)


class _DeadlineStream:
    """As much of a socket as http.client uses. `close` is left to the transport, which reads on after it."""

    def __init__(self, connection: socket.socket, deadline: Deadline, read_s: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._read_s = read_s

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._connection, self._deadline, self._read_s), _PIECE)

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(self._deadline.wait(self._read_s))
        self._connection.sendall(data)

    def close(self) -> None:
        """Nothing: http.client closes as soon as it has read the header."""

    def hang_up(self) -> None:
        self._connection.close()


def _exchange(stream: _DeadlineStream, url: Url, headers: Mapping[str, str], body: bytes | None) -> Reply:
    connection = http.client.HTTPConnection(url.host, url.port)
    connection.sock = stream  # pyright: ignore[reportAttributeAccessIssue]
    method, sized = ("GET", {}) if body is None else ("POST", {"Content-Length": str(len(body))})
    connection.putrequest(method, url.target, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": url.authority, "Connection": "close", **sized, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    return Reply(
        status=response.status,
        headers=tuple(response.getheaders()),
        pieces=iter(lambda: response.read1(_PIECE), b""),
        length=response.length,
    )


@contextmanager
def _translated(host: str) -> Iterator[None]:
    """Errors of sockets, TLS and HTTP as work errors that name the host and nothing else of the URL."""
    try:
        yield
    except WorkError:
        raise
    except TimeoutError as error:
        raise TransientWork("timeout", f"{host} did not answer in time.") from error
    except ssl.SSLCertVerificationError as error:
        raise InvalidWork(
            "tls", f"The certificate of {host} is not valid for it ({error.verify_message})."
        ) from error
    except ssl.SSLError as error:
        raise TransientWork("tls", f"The TLS connection to {host} failed.") from error
    except http.client.IncompleteRead as error:
        raise incomplete_body(host, "it ended in the middle") from error
    except OSError as error:
        raise TransientWork("connection_lost", f"{host} closed the connection early.") from error
    except http.client.HTTPException as error:
        raise TransientWork("bad_response", f"{host} did not answer in HTTP.") from error


def incomplete_body(host: str, what: str) -> TransientWork:
    return TransientWork("incomplete_body", f"The body from {host} is incomplete (truncated): {what}.")


def _unreachable(host: str, failure: OSError) -> TransientWork:
    if isinstance(failure, TimeoutError):
        return TransientWork("timeout", f"Connecting to {host} timed out.")
    if isinstance(failure, ConnectionRefusedError):
        return TransientWork("refused", f"{host} refused the connection: nothing serves that port.")
    return TransientWork("unreachable", f"Cannot connect to {host}: it is unreachable.")
