"""What a client gave as an image is one of four kinds, named so that the same image has the same name."""

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidWork
from app.references import ImageReference, RefKind, parse_reference, ref_hash


def test_a_url_is_kept_as_it_is_without_white_space_around_it() -> None:
    url = "https://a.example/a%2Fb.png?sig=%2b#top"
    assert parse_reference(f" {url}\n") == ImageReference(RefKind.URL, url)


def test_a_data_url_is_named_by_its_bytes() -> None:
    reference = parse_reference("data:image/png;base64,AAEC")
    digest = hashlib.sha256(b"\0\1\2").hexdigest()
    assert reference == ImageReference(RefKind.DATA, digest, data=b"\0\1\2")
    assert ref_hash(reference) == ref_hash(parse_reference("data:,%00%01%02"))


def test_an_uploaded_file_is_named_by_its_id() -> None:
    assert parse_reference("file-Ab_3-9") == ImageReference(RefKind.FILE, "file-Ab_3-9")


@pytest.mark.parametrize(
    "key",
    [
        "a+b.jpg",
        "a%2Fb.jpg",
        "scan?1.jpg",
        "seg#1.jpg",
        "\U0001f9e5.jpg",
        "a//b",
        "../x",
        "/x",
        'it\'s "new" ',
    ],
)
def test_an_s3_key_is_taken_as_it_stands(key: str) -> None:
    reference = parse_reference(f"s3://shop-images/{key}\n")
    assert reference == ImageReference(RefKind.S3, f"s3://shop-images/{key}", bucket="shop-images", key=key)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "https://"),
        ("photo.jpg", "Local paths"),
        ("/etc/passwd", "Local paths"),
        ("C:\\photo.jpg", "Local paths"),
        ("file-", "https://"),
        ("s3:///x.jpg", "bucket"),
        ("s3://bucket", "key"),
        ("s3://bucket/", "key"),
        ("s3://bu cket/x", "bucket"),
        (f"s3://bucket/{'x' * 1025}", "1024"),
        ("s3://bucket/\ud800", "UTF-16"),
        ("gs://bucket/x.jpg", "https://"),
        ("http://user:secret@a.example/x", "user name"),
        (f"https://a.example/{'x' * 9000}", "8192"),
    ],
)
def test_other_texts_are_refused_with_what_to_write_instead(text: str, word: str) -> None:
    with pytest.raises(InvalidWork) as caught:
        parse_reference(text)
    assert caught.value.code == "bad_url"
    assert word in caught.value.message


def test_different_references_have_different_hashes() -> None:
    texts = ["https://a.example/x", "https://a.example/X", "s3://bucket/x", "file-x", "data:,x"]
    hashes = [ref_hash(parse_reference(text)) for text in texts]
    assert len(set(hashes)) == len(texts)
    assert {len(digest) for digest in hashes} == {64}


def test_kinds_do_not_share_hashes() -> None:
    assert len({ref_hash(ImageReference(kind, "x")) for kind in RefKind}) == len(RefKind)


@given(st.text(), st.sampled_from(["", "s3://", "s3://bucket/", "data:", "https://", "file-"]))
def test_any_text_is_a_reference_or_invalid_work(text: str, start: str) -> None:
    with suppress(InvalidWork):
        assert len(ref_hash(parse_reference(start + text))) == 64
