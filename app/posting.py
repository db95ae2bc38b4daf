"""Sends a body to somebody else's server: guarded like a download, no redirects, no body read."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.config import Settings
from app.download import Resolver, look_up, resolve, retry_after
from app.errors import InvalidWork
from app.guard import FetchPolicy, Url, check_url, parse_url
from app.http_exchange import Deadline, DirectTransport, Transport

# A receiver should take a message at once and work on it later.
TOTAL_S, CONNECT_S, READ_S = 15.0, 5.0, 15.0


@dataclass(frozen=True)
class Posted:
    """What the receiver answered."""

    status: int
    retry_after_s: float | None

    @property
    def taken(self) -> bool:
        return 200 <= self.status < 300


class Poster:
    """Safe to share among threads; at most `total_s` seconds for one post."""

    def __init__(
        self,
        *,
        policy: FetchPolicy,
        transport: Transport,
        resolver: Resolver = resolve,
        total_s: float = TOTAL_S,
    ) -> None:
        self._policy = policy
        self._transport = transport
        self._resolver = resolver
        self._total_s = total_s

    def check(self, text: str) -> Url:
        """The URL, if we would post to it; InvalidWork for one that is malformed, not https or not public."""
        url = parse_url(text)
        if url.scheme != "https" and not self._policy.trusts(url):
            raise InvalidWork("bad_url", "The URL must begin with https://.")
        check_url(url, self._policy)
        return url

    def post(
        self, text: str, body: bytes, headers: Mapping[str, str], *, within_s: float | None = None
    ) -> Posted:
        """Send once; the WorkErrors of downloads where no answer came, within `within_s` if that is given."""
        url = self.check(text)
        addresses = look_up(url, self._policy, self._resolver)
        deadline = Deadline(within_s or self._total_s, what=f"{url.host} did not answer")
        with self._transport(url, addresses, headers=headers, deadline=deadline, body=body) as reply:
            return Posted(reply.status, retry_after(reply.header("Retry-After")))


def make_poster(settings: Settings) -> Poster:
    """The poster of a process: its ports and trusted hosts are those of downloads."""
    return Poster(
        policy=FetchPolicy(ports=settings.fetch_ports, allow_hosts=settings.fetch_allow_hosts),
        transport=DirectTransport(connect_s=CONNECT_S, read_s=READ_S),
    )
