"""Data URLs are decoded however they are written, and never silently damaged."""

import base64
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.data_urls import decode_data_url, is_data_url
from app.errors import InvalidWork

BYTES = bytes(range(256)) + b"\xfb\xff\xfe"
TEXT = base64.b64encode(BYTES).decode()


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{TEXT}",
        f"DATA:image/png;BASE64,{TEXT}",
        f"data:image/png;charset=utf-8;base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f"data:text/plain;base64,{TEXT}",
        f"data:image/png;base64,{TEXT.rstrip('=')}",
        f"data:image/png;base64,{TEXT.replace('+', '-').replace('/', '_')}",
        f"data:image/png;base64,{quote(TEXT, safe='')}",
        f"data:image/png;base64,{TEXT[:76]}\r\n  {TEXT[76:]}\n",
        f" data:image/png;base64, {TEXT}",
        f"data:image/png,{quote(BYTES)}",
    ],
)
def test_every_spelling_gives_the_bytes(url: str) -> None:
    assert decode_data_url(url) == BYTES


@pytest.mark.parametrize("kind", ["video", "audio"])
def test_what_moves_or_sounds_is_refused_by_its_declared_type(kind: str) -> None:
    refusal = _refusal(f" Data:{kind}/mp4;base64,{TEXT}")
    assert refusal.code == "unsupported_modality"
    assert f"not {kind}" in refusal.message


@pytest.mark.parametrize("url", ["data:", "data:image/png;base64", "https://a.example/,"])
def test_a_data_url_without_its_comma_is_malformed(url: str) -> None:
    assert _refusal(url).code == "bad_data_url"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("AAAA!AAA", "character '!' at position 4"),
        ("AAAA\u00e9AAA", "character"),
        ("AAAAA", "truncated"),
        ("AA==AAAA", "character '='"),
        ("AAAA===", "padding"),
        ("AAAA AAA", "turned into a space"),
        ("AAAA#top", "character '#'"),
        ("data:image/png;base64,AAAA", "character ':'"),
        ("AAAA%zzAA", "character '%'"),
    ],
)
def test_bad_base64_is_refused_with_what_is_wrong(body: str, word: str) -> None:
    error = _refusal(f"data:image/png;base64,{body}")
    assert error.code == "bad_base64"
    assert word in error.message


@pytest.mark.parametrize("url", ["data:image/png;base64,", "data:image/png,", "data:,#top"])
def test_a_data_url_without_data_is_empty(url: str) -> None:
    assert _refusal(url).code == "empty_body"


def test_only_data_urls_are_data_urls() -> None:
    assert [is_data_url(text) for text in ("data:x", "Data:x", "https://data:x", "")] == [
        True,
        True,
        False,
        False,
    ]


@given(st.binary(min_size=1))
def test_any_bytes_come_back(data: bytes) -> None:
    assert decode_data_url(f"data:;base64,{base64.b64encode(data).decode()}") == data
    assert decode_data_url(f"data:,{quote(data)}") == data


@given(st.text(), st.sampled_from(["data:", "data:;base64,", "data:,", ""]))
def test_any_text_gives_bytes_or_invalid_work(text: str, start: str) -> None:
    with suppress(InvalidWork):
        assert decode_data_url(start + text)


def _refusal(url: str) -> InvalidWork:
    with pytest.raises(InvalidWork) as caught:
        decode_data_url(url)
    return caught.value
