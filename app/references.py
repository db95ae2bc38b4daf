"""Reads what a client gave as an image: an https URL, a data URL, an s3:// key or the id of an upload."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from app.data_urls import decode_data_url, is_data_url
from app.errors import InvalidWork
from app.guard import parse_url

_FILE_ID = re.compile(r"file-[A-Za-z0-9_-]{1,128}")
_S3 = re.compile(r"s3://", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_MAX_KEY_BYTES = 1024  # S3's own limit
_MAX_URL_CHARACTERS = 8192  # what common servers take in a request line


class RefKind(StrEnum):
    """Where the bytes of a referenced image come from."""

    URL = "url"
    S3 = "s3"
    FILE = "file"
    DATA = "data"


@dataclass(frozen=True)
class ImageReference:
    """One reference; `ref` names the image among those of its kind, and is the URL, `s3://` key or id.

    For a data URL it is the content hash of `data`, so that a megabyte never becomes a name.
    """

    kind: RefKind
    ref: str
    bucket: str = ""
    key: str = ""
    data: bytes = b""


def parse_reference(text: str) -> ImageReference:
    """Read a reference by its form only: nothing is resolved, fetched or looked up.

    Raises InvalidWork: `bad_url`, `bad_data_url`, `bad_base64`, `empty_body`, `unsupported_modality`. Whether
    a URL may be fetched (`blocked_url`, `blocked_address`) is decided when it is, for every hop.
    """
    stripped = text.strip(" \t\r\n")
    if is_data_url(stripped):
        return _data(stripped)
    if _S3.match(stripped):
        return _s3(text.lstrip().rstrip("\r\n"))
    if _FILE_ID.fullmatch(stripped):
        return ImageReference(RefKind.FILE, stripped)
    if "://" not in stripped:
        raise InvalidWork(
            "bad_url",
            "The image is given as neither an https:// URL, a data: URL, s3://bucket/key nor the id of an "
            "uploaded file (file-...). Local paths are not read: upload the file first.",
        )
    if len(stripped) > _MAX_URL_CHARACTERS:
        raise InvalidWork("bad_url", f"The URL is longer than {_MAX_URL_CHARACTERS} characters.")
    parse_url(stripped)
    return ImageReference(RefKind.URL, stripped)


def ref_hash(reference: ImageReference) -> str:
    """Hex sha256 that stands for a reference; one reference has one hash, whoever asks."""
    return hashlib.sha256(f"{reference.kind}\0{reference.ref}".encode()).hexdigest()


def _data(text: str) -> ImageReference:
    data = decode_data_url(text)
    return ImageReference(RefKind.DATA, hashlib.sha256(data).hexdigest(), data=data)


def _s3(text: str) -> ImageReference:
    """Bucket and key as they stand: a key may hold any character, percent signs and dots included."""
    bucket, _, key = text[len("s3://") :].partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidWork("bad_url", "The s3 reference has no valid bucket. Write s3://bucket/key.")
    if not key:
        raise InvalidWork("bad_url", "The s3 reference has no key. Write s3://bucket/key.")
    if "\0" in key or len(_utf8(key)) > _MAX_KEY_BYTES:
        raise InvalidWork("bad_url", f"The s3 key is not one: S3 allows {_MAX_KEY_BYTES} bytes of UTF-8.")
    return ImageReference(RefKind.S3, f"s3://{bucket}/{key}", bucket=bucket, key=key)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidWork(
            "bad_url", "The s3 key holds half of a UTF-16 pair, which is no character."
        ) from error
