"""URLs are read strictly, and nothing but the public internet is fetched from unless an operator says so."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidWork
from app.guard import FetchPolicy, Url, check_addresses, check_url, join_url, parse_url

POLICY = FetchPolicy()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("https://a.example", "/"),
        ("https://a.example?x=1", "/?x=1"),
        ("https://a.example/a%2Fb.png?sig=%2B%2f&n=a+b", "/a%2Fb.png?sig=%2B%2f&n=a+b"),
        ("https://a.example/it%27s%7Eok%21.png", "/it%27s%7Eok%21.png"),
        ("https://a.example/with space.png", "/with%20space.png"),
        ("https://a.example/caf\u00e9/\u5546.png", "/caf%C3%A9/%E5%95%86.png"),
        ("https://a.example/x.png#top", "/x.png"),
        ("https://a.example/a%0d%0aHost:%20b", "/a%0d%0aHost:%20b"),
        (" https://a.example/x.png\r\n", "/x.png"),
        ("HTTPS://A.Example/X.png", "/X.png"),
    ],
)
def test_the_request_target_is_kept_byte_for_byte(text: str, target: str) -> None:
    assert parse_url(text) == Url("https", "a.example", 443, target)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://a.example./x", "a.example", 80),
        ("http://a.example:8080/x", "a.example", 8080),
        ("http://a.example:/x", "a.example", 80),
        ("http://b\u00fccher.example/x", "xn--bcher-kva.example", 80),
        ("http://a_b.example/x", "a_b.example", 80),
        ("http://[2606:4700:0::1]:8080/x", "2606:4700::1", 8080),
        ("http://\u2460\u2461\u2466.0.0.1/x", "127.0.0.1", 80),
    ],
)
def test_hosts_are_brought_to_one_spelling(text: str, host: str, port: int) -> None:
    url = parse_url(text)
    assert (url.host, url.port) == (host, port)


def test_the_host_header_names_the_port_where_it_is_not_the_schemes_own() -> None:
    texts = ("https://a.example:443/", "https://a.example:80/", "http://[2606:4700::1]:8080/")
    assert [parse_url(text).authority for text in texts] == [
        "a.example",
        "a.example:80",
        "[2606:4700::1]:8080",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "ftp://a.example/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//a.example/x",
        "http:///x",
        "http://user:secret@a.example/x",
        "http://a.example@127.0.0.1/x",
        "http://a.example\\@127.0.0.1/x",
        "http://a.example\r\nX-Injected: 1/x",
        "http://a.example/x\r\nX-Injected: 1",
        "http://a.exa%6dple/x",
        "http://127.0.0.1%00.a.example/x",
        "http://a..example/x",
        "http://-a.example/x",
        f"http://{'a' * 64}.example/x",
        "http://a.example:0/x",
        "http://a.example:65536/x",
        "http://a.example:-1/x",
        "http://a.example:8o/x",
        "http://0177.0.0.1/x",
        "http://0x7f.0.0.1/x",
        "http://2130706433/x",
        "http://127.1/x",
        "http://1.2.3.4.5/x",
        "http://[::1%25eth0]/x",
        "http://[::zz]/x",
        "http://a.example/\ud800",
    ],
)
def test_what_two_programs_may_read_differently_is_malformed(text: str) -> None:
    with pytest.raises(InvalidWork) as caught:
        parse_url(text)
    assert caught.value.code == "bad_url"
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost/x",
        "http://pictures.localhost/x",
        "http://redis/x",
        "http://metadata.google.internal/x",
        "http://printer.local/x",
        "http://10.1.2.3/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://a.example:22/x",
    ],
)
def test_private_names_addresses_and_ports_are_blocked_without_a_lookup(text: str) -> None:
    with pytest.raises(InvalidWork) as caught:
        check_url(parse_url(text), POLICY)
    assert caught.value.code == ("blocked_url" if ":22" in text else "blocked_address")


def test_public_names_and_addresses_pass() -> None:
    for text in ("https://127-0-0-1.example.com/x", "http://172.15.255.255/x", "http://[2606:4700::1]/x"):
        check_url(parse_url(text), POLICY)


def test_one_private_address_among_the_answers_blocks_all() -> None:
    url = parse_url("https://a.example/x")
    assert check_addresses(url, ("93.184.215.14", "2606:4700::1"), POLICY) == (
        "93.184.215.14",
        "2606:4700::1",
    )
    with pytest.raises(InvalidWork, match="blocked"):
        check_addresses(url, ("93.184.215.14", "10.0.0.7"), POLICY)


def test_a_mapped_address_is_connected_to_as_the_address_that_was_checked() -> None:
    assert check_addresses(parse_url("https://a.example/x"), ("::ffff:8.8.8.8",), POLICY) == ("8.8.8.8",)


def test_every_private_host_gets_the_same_text() -> None:
    texts = ("http://localhost/", "http://10.0.0.1/", "http://redis/", "http://[fd00::1]/")
    assert len({_blocked(text, POLICY) for text in texts}) == 1


def test_an_allowed_host_may_be_private_on_the_usual_ports() -> None:
    policy = FetchPolicy(allow_hosts=("pictures.internal",))
    url = parse_url("http://pictures.internal:8080/x")
    check_url(url, policy)
    assert check_addresses(url, ("10.0.0.7",), policy) == ("10.0.0.7",)
    said = "port 9000 is blocked. Allowed are 80, 443, 8080, 8443;"
    assert said in _blocked("http://pictures.internal:9000/x", policy)
    assert "public internet" in _blocked("http://10.0.0.7/x", policy)


def test_an_allowed_host_with_a_port_is_allowed_on_that_port_only() -> None:
    policy = FetchPolicy(allow_hosts=("10.0.0.7:9000",))
    check_url(parse_url("http://10.0.0.7:9000/x"), policy)
    assert "public internet" in _blocked("http://10.0.0.7/x", policy)


@pytest.mark.parametrize(
    ("location", "want"),
    [
        ("https://b.example/y", Url("https", "b.example", 443, "/y")),
        ("//b.example/y", Url("http", "b.example", 80, "/y")),
        ("/y%2F?s=%2B%3d", Url("http", "a.example", 8080, "/y%2F?s=%2B%3d")),
        ("y", Url("http", "a.example", 8080, "/dir/y")),
        ("../y", Url("http", "a.example", 8080, "/y")),
        ("?q=2", Url("http", "a.example", 8080, "/dir/x?q=2")),
        ("/caf\udcc3\udca9", Url("http", "a.example", 8080, "/caf%C3%A9")),
    ],
)
def test_a_location_is_read_against_the_url_that_it_came_from(location: str, want: Url) -> None:
    assert join_url(parse_url("http://a.example:8080/dir/x?q=1"), location) == want


@given(st.text(max_size=80), st.sampled_from(["", "http://", "https://a.example/", "http://[", "http://a:"]))
def test_any_text_is_read_or_malformed(text: str, start: str) -> None:
    with suppress(InvalidWork):
        url = parse_url(start + text)
        assert url.target.isascii()
        assert not set(url.target + url.host) & set(" \r\n\t\0#")


@given(st.text(max_size=80))
def test_any_location_is_read_or_malformed(location: str) -> None:
    with suppress(InvalidWork):
        assert join_url(parse_url("http://a.example//[x/y?z"), location).target.isascii()


def _blocked(text: str, policy: FetchPolicy) -> str:
    with pytest.raises(InvalidWork) as caught:
        check_url(parse_url(text), policy)
    return caught.value.message
