"""The downloader's decisions, on stub names and stub replies: nothing is sent."""

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import ValidationError

from app.config import Settings
from app.download import Downloader, user_agent
from app.errors import InvalidWork, TransientWork, WorkError
from app.guard import FetchPolicy, Url
from app.http_exchange import Deadline, Reply

PICTURE = b"picture" * 100
URL = "https://a.example/x.png"


class Net:
    """Scripted replies, one per visit, the last for ever; every name resolves to `addresses` in turn."""

    def __init__(self, *replies: Reply, addresses: Sequence[str] = ("93.184.215.14",)) -> None:
        self.replies = replies
        self.addresses = addresses
        self.lookups: list[str] = []
        self.visits: list[tuple[Url, tuple[str, ...], Mapping[str, str]]] = []

    def resolve(self, host: str, port: int) -> tuple[str, ...]:
        self.lookups.append(host)
        return (self.addresses[min(len(self.lookups), len(self.addresses)) - 1],)

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
        self.visits.append((url, addresses, headers))
        yield self.replies[min(len(self.visits), len(self.replies)) - 1]


def reply(body: bytes = PICTURE, status: int = 200, *, length: int | None = None, **headers: str) -> Reply:
    pieces = (body[at : at + 50] for at in range(0, len(body), 50))
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status=status, headers=named, pieces=pieces, length=length)


def redirect(location: str, *, cookie: str = "") -> Reply:
    return reply(b"", 302, Location=location, Set_Cookie=cookie)


def downloader(net: Net) -> Downloader:
    return Downloader(
        policy=FetchPolicy(), max_bytes=1000, max_redirects=3, total_s=5, transport=net, resolver=net.resolve
    )


def refusal(net: Net, url: str = URL) -> WorkError:
    with pytest.raises(WorkError) as caught:
        downloader(net).fetch(url)
    return caught.value


def test_a_body_is_fetched_from_the_address_that_was_checked() -> None:
    net = Net(reply())
    assert downloader(net).fetch(URL) == PICTURE
    url, addresses, headers = net.visits[0]
    assert (url.host, url.target, addresses) == ("a.example", "/x.png", ("93.184.215.14",))
    assert headers["User-Agent"] == user_agent(None)


def test_the_agent_says_what_it_is_and_whom_to_ask() -> None:
    assert re.fullmatch(r"vqueue/[0-9.]+ \(image fetcher for batch inference\)", user_agent(None))
    assert user_agent("https://shop.example/bot").endswith("inference; +https://shop.example/bot)")


@pytest.mark.parametrize("contact", ["a b", "a)b", "a\r\nHost: b", ""])
def test_a_contact_that_no_header_can_hold_is_refused(contact: str) -> None:
    with pytest.raises(ValidationError):
        Settings(fetch_contact=contact)


def test_an_address_in_the_url_is_not_looked_up() -> None:
    net = Net(reply())
    downloader(net).fetch("http://93.184.215.14/x")
    assert net.lookups == []
    assert net.visits[0][1] == ("93.184.215.14",)


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "http://localhost/x", "https://a.example:22/x"])
def test_a_blocked_url_is_never_connected_to(url: str) -> None:
    net = Net(reply())
    error = refusal(net, url)
    assert (error.code, net.visits) == ("blocked_url" if ":22" in url else "blocked_address", [])


def test_a_name_with_a_private_address_is_never_connected_to() -> None:
    net = Net(reply(), addresses=["10.0.0.7"])
    assert refusal(net).code == "blocked_address"
    assert net.visits == []


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/meta", "//127.0.0.1/x", "https://a.example:6379/x"]
)
def test_every_hop_is_checked(location: str) -> None:
    net = Net(redirect(location), reply())
    assert refusal(net).code == ("blocked_url" if ":6379" in location else "blocked_address")
    assert len(net.visits) == 1


def test_every_hop_is_looked_up_anew() -> None:
    net = Net(redirect("/again"), reply(), addresses=["93.184.215.14", "10.0.0.7"])
    assert refusal(net).code == "blocked_address"
    assert net.lookups == ["a.example", "a.example"]


def test_redirects_are_followed_up_to_the_limit() -> None:
    assert downloader(Net(*[redirect("/on")] * 3, reply())).fetch(URL) == PICTURE
    net = Net(redirect("/on"))
    assert refusal(net).code == "too_many_redirects"
    assert len(net.visits) == 4


def test_a_redirects_escapes_are_kept() -> None:
    net = Net(redirect("/after%2Fredirect.png?s=%2B%3d"), reply())
    downloader(net).fetch(URL)
    assert net.visits[1][0].target == "/after%2Fredirect.png?s=%2B%3d"


def test_a_redirect_without_location_is_refused() -> None:
    error = refusal(Net(reply(b"", 302)))
    assert error.code == "bad_redirect"
    assert "302" in error.message


def test_cookies_go_back_to_the_host_that_set_them_and_to_no_other() -> None:
    net = Net(redirect("/again", cookie="seen=1; Path=/"), redirect("https://b.example/x"), reply())
    downloader(net).fetch(URL)
    assert [headers.get("Cookie") for _, _, headers in net.visits] == [None, "seen=1", None]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 300, 304, 501, 505, 999])
def test_a_refusal_is_not_tried_again(status: int) -> None:
    error = refusal(Net(reply(b"secret", status)))
    assert isinstance(error, InvalidWork)
    assert error.code == f"http_{status}"
    assert str(status) in error.message


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520])
def test_trouble_at_the_host_may_be_tried_again(status: int) -> None:
    error = refusal(Net(reply(b"", status)))
    assert isinstance(error, TransientWork)
    assert (error.code, error.retry_after_s) == (f"http_{status}", None)


@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("soon", None), ("", None), ("-1", None)])
def test_retry_after_in_seconds_is_told(value: str, seconds: float | None) -> None:
    error = refusal(Net(reply(b"", 429, Retry_After=value)))
    assert isinstance(error, TransientWork)
    assert error.retry_after_s == seconds


def test_retry_after_as_a_date_is_told() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    error = refusal(Net(reply(b"", 503, Retry_After=date)))
    assert isinstance(error, TransientWork)
    assert error.retry_after_s is not None
    assert 90 < error.retry_after_s <= 100


def test_a_body_announced_as_too_large_is_not_read() -> None:
    answer = reply(b"x" * 10, length=1001)
    assert refusal(Net(answer)).code == "too_large"
    assert next(iter(answer.pieces)) == b"x" * 10


def test_a_body_is_counted_as_it_comes() -> None:
    assert downloader(Net(reply(bytes(1000)))).fetch(URL) == bytes(1000)
    answer = reply(bytes(5000))
    assert refusal(Net(answer)).code == "too_large"
    assert len(list(answer.pieces)) > 70


def test_a_body_shorter_than_announced_may_be_tried_again() -> None:
    error = refusal(Net(reply(length=len(PICTURE) + 1)))
    assert isinstance(error, TransientWork)
    assert error.code == "incomplete_body"


def test_an_empty_body_is_refused() -> None:
    assert refusal(Net(reply(b"", 200))).code == "empty_body"
    assert "204" in refusal(Net(reply(b"", 204))).message


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "deflate"])
def test_compressed_bodies_are_unpacked(encoding: str) -> None:
    body = zlib.compress(PICTURE) if encoding == "deflate" else gzip.compress(PICTURE)
    assert downloader(Net(reply(body, Content_Encoding=encoding))).fetch(URL) == PICTURE


def test_a_gzip_bomb_is_stopped_at_the_limit() -> None:
    assert refusal(Net(reply(gzip.compress(bytes(10**7)), Content_Encoding="gzip"))).code == "too_large"


def test_gzip_that_ends_early_or_is_none_is_refused() -> None:
    assert refusal(Net(reply(gzip.compress(PICTURE)[:-9], Content_Encoding="gzip"))).code == "incomplete_body"
    assert refusal(Net(reply(Content_Encoding="gzip"))).code == "bad_encoding"
    assert refusal(Net(reply(Content_Encoding="br"))).code == "bad_encoding"


def test_no_message_tells_the_path_or_the_query() -> None:
    url = "https://a.example/private/x.png?X-Amz-Signature=secret"
    nets = [Net(reply(b"", 403)), Net(reply(b"", 500)), Net(reply(b"")), Net(redirect("/on?secret"))]
    messages = [refusal(net, url).message for net in nets]
    assert not [message for message in messages if "secret" in message or "private" in message]


def test_a_deadline_ends_every_wait() -> None:
    times = iter([0.0, 1.0, 4.5, 5.0])
    deadline = Deadline(5, clock=lambda: next(times))
    assert (deadline.wait(2), deadline.wait(2)) == (2, 0.5)
    with pytest.raises(TransientWork, match="timeout"):
        deadline.wait(2)
