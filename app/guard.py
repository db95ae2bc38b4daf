"""Decides which URLs may be fetched: reads a URL strictly, then judges host, port and addresses. No I/O."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urljoin

from app.addresses import is_public, literal_address, unmapped
from app.errors import InvalidWork

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@\\%\s]+)(?::([0-9]*))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_TARGET_SAFE = frozenset(
    b"%!$&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}

# Names that never mean a host of the public internet (RFC 6761, 6762, 8375 and habit).
_PRIVATE_SUFFIXES = ("localhost", "local", "internal", "localdomain", "home.arpa", "lan", "intranet")


@dataclass(frozen=True)
class Url:
    """An http(s) URL, taken apart. `target` is what the request line carries, byte for byte."""

    scheme: Literal["http", "https"]
    host: str  # lower case, ASCII, no brackets, no trailing dot
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True)
class FetchPolicy:
    """Which ports may be fetched from, and which hosts even at private addresses.

    An entry of `allow_hosts` is a host (on `ports`) or `host:port` (on that port).
    """

    ports: tuple[int, ...] = (80, 443, 8080, 8443)
    allow_hosts: tuple[str, ...] = ()

    def trusts(self, url: Url) -> bool:
        return f"{url.host}:{url.port}" in self.allow_hosts or (
            url.host in self.allow_hosts and url.port in self.ports
        )


def parse_url(text: str) -> Url:
    """Read an http or https URL strictly: what two programs could read differently is refused.

    White space around it and a fragment are dropped, percent escapes stay as they are, spaces and other
    characters that no request line may hold are percent-encoded. Raises InvalidWork `bad_url`.
    """
    text = text.strip(" \t\r\n")
    if _CONTROL.search(text):
        raise _bad_url("it holds a line break or another control character")
    matched = _URL.fullmatch(text)
    if matched is None:
        raise _bad_url("only https:// and http:// are fetched")
    scheme: Literal["http", "https"] = "https" if matched[1].lower() == "https" else "http"
    host, port = _read_authority(matched[2])
    return Url(
        scheme=scheme,
        host=host,
        port=_DEFAULT_PORTS[scheme] if port is None else port,
        target=_request_target(matched[3]),
    )


def join_url(base: Url, location: str) -> Url:
    """The URL that a redirect's Location means, read as strictly. Raises InvalidWork `bad_url`."""
    location = location.strip(" \t")
    if _CONTROL.search(location):
        raise _bad_url("a redirect holds a control character")
    if _SCHEME.match(location):
        return parse_url(location)
    if location.startswith("//"):
        return parse_url(f"{base.scheme}:{location}")
    if not location.startswith("/"):
        location = _relative(base.target, location)
    return parse_url(f"{base.scheme}://{base.authority}{location}")


def check_url(url: Url, policy: FetchPolicy) -> None:
    """Decide what can be decided without a name server; raises InvalidWork `blocked_url`
    for its port, `blocked_address` for its host."""
    if policy.trusts(url):
        return
    if url.port not in policy.ports:
        allowed = ", ".join(map(str, sorted(policy.ports)))
        raise InvalidWork(
            "blocked_url",
            f"Fetching from port {url.port} is blocked. Allowed are {allowed}; an operator can change that "
            "with VQUEUE_FETCH_PORTS.",
        )
    literal = literal_address(url.host)
    if literal is not None and not is_public(str(literal)):
        raise _blocked_host()
    if literal is None and _is_private_name(url.host):
        raise _blocked_host()


def check_addresses(url: Url, addresses: tuple[str, ...], policy: FetchPolicy) -> tuple[str, ...]:
    """The addresses to connect to, out of what the host's name resolved to.

    One private address among public ones refuses them all. Raises InvalidWork `blocked_address`.
    """
    if not policy.trusts(url) and not all(is_public(address) for address in addresses):
        raise _blocked_host()
    return tuple(unmapped(address) for address in addresses)


def _relative(target: str, location: str) -> str:
    try:
        return urljoin(target, location)
    except ValueError as error:
        raise _bad_url("a redirect is malformed") from error


def _read_authority(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise _bad_url("it holds a user name or an @ before the host; use a signed link instead")
    matched = _AUTHORITY.fullmatch(authority)
    if matched is None:
        raise _bad_url("its host is missing or malformed")
    return _read_host(matched[1]), _read_port(matched[2])


def _read_port(digits: str | None) -> int | None:
    if not digits:
        return None
    if len(digits) > 5 or not 1 <= int(digits) <= 65_535:
        raise _bad_url("its port is not between 1 and 65535")
    return int(digits)


def _read_host(host: str) -> str:
    if host.startswith("["):
        literal = literal_address(host[1:-1])
        if literal is None:
            raise _bad_url("its IPv6 address is malformed")
        return literal.compressed
    name = _ascii_name(host).removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _bad_url("its host name is malformed")
    if _NUMBER.fullmatch(labels[-1]) and literal_address(name) is None:
        raise _bad_url("its IPv4 address is not written as four decimal numbers")
    return name


def _ascii_name(host: str) -> str:
    """Lower case; names in other scripts as the name system spells them (`xn--...`)."""
    if host.isascii():
        return host.lower()
    try:
        return host[:254].encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise _bad_url("its host name cannot be written in ASCII") from error


def _is_private_name(host: str) -> bool:
    """A name without a dot, or below a suffix that only private networks use."""
    return "." not in host or any(host.endswith(f".{suffix}") for suffix in _PRIVATE_SUFFIXES)


def _request_target(rest: str) -> str:
    path = rest if rest.startswith("/") else f"/{rest}"
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _bad_url("it holds half of a UTF-16 pair, which is no character") from error
    return "".join(chr(byte) if byte in _TARGET_SAFE else f"%{byte:02X}" for byte in raw)


def _bad_url(what: str) -> InvalidWork:
    return InvalidWork("bad_url", f"The image URL is malformed or of a kind that is not fetched: {what}.")


def _blocked_host() -> InvalidWork:
    """One text for every private address and name, so that it tells nothing about the network here."""
    return InvalidWork(
        "blocked_address",
        "The URL is blocked: its host is not on the public internet. Upload the image or give an s3:// key; "
        "an operator can allow a host with VQUEUE_FETCH_ALLOW_HOSTS.",
    )
