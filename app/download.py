"""Downloads an image by URL: every hop guarded, every size and time bounded."""

import socket
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version

from app.config import Settings
from app.errors import InvalidWork, TransientWork, WorkError, status_may_pass
from app.guard import FetchPolicy, Url, check_addresses, check_url, join_url, literal_address, parse_url
from app.http_exchange import Deadline, DirectTransport, Reply, Transport, incomplete_body

# A server may be silent for this long within the time of the whole download.
_READ_S = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"Accept": "image/*,*/*;q=0.5", "Accept-Encoding": "identity"}

Resolver = Callable[[str, int], tuple[str, ...]]
Cookies = dict[str, dict[str, str]]  # host: name: value


def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a name, by the system's resolver and within its time limits.

    Raises InvalidWork `dns` for a name that does not exist, TransientWork `dns` where no answer came.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise TransientWork("dns", f"The name server gave no answer for {host}.") from error
        raise InvalidWork("dns", f"The host {host} does not exist. Check the link.") from error
    except UnicodeError as error:
        raise InvalidWork("bad_url", "The URL's host name is malformed.") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def look_up(url: Url, policy: FetchPolicy, resolver: Resolver) -> tuple[str, ...]:
    """The addresses of a checked URL that may be connected to, as the name server has them now.

    Raises what `resolve` and `check_addresses` raise.
    """
    found = (url.host,) if literal_address(url.host) else resolver(url.host, url.port)
    return check_addresses(url, found, policy)


class Downloader:
    """Fetches one URL after another; safe to share among threads.

    Only addresses that `policy` lets pass are connected to, looked up anew for every redirect. Bodies are
    counted as they come, also after gunzip. Nothing is tried twice here: that is the fetcher's decision.
    """

    def __init__(
        self,
        *,
        policy: FetchPolicy,
        max_bytes: int,
        max_redirects: int,
        total_s: float,
        transport: Transport,
        resolver: Resolver = resolve,
        contact: str | None = None,
    ) -> None:
        self._policy = policy
        self._max_bytes = max_bytes
        self._max_redirects = max_redirects
        self._total_s = total_s
        self._transport = transport
        self._resolver = resolver
        self._headers = {"User-Agent": user_agent(contact), **_HEADERS}

    def fetch(self, url: str) -> bytes:
        """The body behind `url`; blocks for up to `total_s` seconds (and a name server's own time limit).

        Raises InvalidWork where another try would fail too, TransientWork where it may not; docs/images.md
        lists the codes.
        """
        body = bytearray()
        self.pour(url, body.extend)
        return bytes(body)

    def pour(self, url: str, take: Callable[[bytes], object]) -> None:
        """The same piece by piece, for what is too large to hold; pieces may come before an error."""
        deadline = Deadline(self._total_s)
        cookies: Cookies = {}
        hop: Url | None = parse_url(url)
        for _ in range(self._max_redirects + 1):
            hop = self._visit(hop, cookies, deadline, take)
            if hop is None:
                return
        raise InvalidWork(
            "too_many_redirects",
            f"The URL leads through more than {self._max_redirects} redirects. Link directly.",
        )

    def _visit(
        self, url: Url, cookies: Cookies, deadline: Deadline, take: Callable[[bytes], object]
    ) -> Url | None:
        """The URL of the next hop; None where the body was read."""
        check_url(url, self._policy)
        addresses = look_up(url, self._policy, self._resolver)
        cookie = "; ".join(f"{name}={value}" for name, value in cookies.get(url.host, {}).items())
        headers = {**self._headers, "Cookie": cookie} if cookie else self._headers
        with self._transport(url, addresses, headers=headers, deadline=deadline) as reply:
            if reply.status in _REDIRECTS:
                _remember(cookies, url.host, reply)
                return _next_hop(url, reply)
            if not 200 <= reply.status < 300:
                raise _refusal(url.host, reply)
            self._read(url.host, reply, take)
            return None

    def _read(self, host: str, reply: Reply, take: Callable[[bytes], object]) -> None:
        if reply.length is not None and reply.length > self._max_bytes:
            raise self._too_large(f"{host} announces {reply.length} bytes")
        size = 0
        for piece in _decoded(host, reply, _counted(host, reply), self._max_bytes + 1):
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large(f"{host} sends more")
            take(piece)
        if not size:
            raise InvalidWork("empty_body", f"{host} answered {reply.status} with an empty body (0 bytes).")

    def _too_large(self, what: str) -> InvalidWork:
        return InvalidWork(
            "too_large",
            f"The image is too large: {what}; the limit is {self._max_bytes} bytes. Send a smaller file.",
        )


def make_downloader(settings: Settings) -> Downloader:
    """The downloader of a process, from its settings."""
    return Downloader(
        policy=FetchPolicy(ports=settings.fetch_ports, allow_hosts=settings.fetch_allow_hosts),
        max_bytes=settings.image_max_bytes,
        max_redirects=settings.fetch_redirects,
        total_s=settings.fetch_total_s,
        transport=DirectTransport(connect_s=settings.fetch_connect_s, read_s=_READ_S),
        contact=settings.fetch_contact,
    )


def user_agent(contact: str | None) -> str:
    """Who asks, for the people behind a host: what this is, and where they can turn to."""
    whom = f"; +{contact}" if contact else ""
    return f"vqueue/{version('vqueue')} (image fetcher for batch inference{whom})"


def _counted(host: str, reply: Reply) -> Iterator[bytes]:
    """The body as sent; raises TransientWork where it ends before its announced length."""
    received = 0
    for piece in reply.pieces:
        received += len(piece)
        yield piece
    if reply.length is not None and received < reply.length:
        raise incomplete_body(host, f"{received} of {reply.length} bytes came")


def _decoded(host: str, reply: Reply, pieces: Iterator[bytes], room: int) -> Iterator[bytes]:
    """The body without its Content-Encoding; no piece is larger than `room`, however well it was packed."""
    encoding = (reply.header("Content-Encoding") or "identity").strip().lower()
    if encoding in ("identity", "aws-chunked", "none", "utf-8"):
        return pieces
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _inflated(host, pieces, room)
    raise InvalidWork("bad_encoding", f"{host} sends the image in the content encoding {encoding[:20]!r}.")


def _inflated(host: str, pieces: Iterator[bytes], room: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=47)  # gzip or zlib, by its own header
    try:
        for piece in pieces:
            yield unpacker.decompress(piece, room)
    except zlib.error as error:
        raise InvalidWork("bad_encoding", f"{host} announces a gzip body, but it is none.") from error
    if not unpacker.eof:
        raise incomplete_body(host, "its gzip data ends early")


def _next_hop(url: Url, reply: Reply) -> Url:
    location = reply.header("Location")
    if not location:
        raise InvalidWork(
            "bad_redirect", f"{url.host} answered {reply.status}, a redirect without a Location."
        )
    return join_url(url, _utf8_header(location))


def _utf8_header(value: str) -> str:
    """A header read as Latin-1, as UTF-8; bytes that are not UTF-8 go into the request as they are."""
    return value.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def _remember(cookies: Cookies, host: str, reply: Reply) -> None:
    """Keep a hop's cookies for later hops at the same host: some hosts redirect until theirs comes back."""
    for line in reply.all("Set-Cookie"):
        name, equals, value = line.partition(";")[0].partition("=")
        if equals and (name.strip() + value.strip()).isprintable() and len(line) < 4096:
            cookies.setdefault(host, {})[name.strip()] = value.strip()


def _refusal(host: str, reply: Reply) -> WorkError:
    code = f"http_{reply.status}"
    if status_may_pass(reply.status):
        return TransientWork(
            code, f"{host} answered {reply.status}.", retry_after_s=retry_after(reply.header("Retry-After"))
        )
    advice = {
        401: " It wants a login: use a signed link.",
        403: " If the link is signed, it may have expired.",
        404: " The image was not found there.",
        410: " The image is gone.",
    }.get(reply.status, "")
    return InvalidWork(code, f"{host} answered {reply.status}.{advice}")


def retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    zoned = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (zoned - datetime.now(UTC)).total_seconds())
