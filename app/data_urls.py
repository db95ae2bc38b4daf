"""Reads data URLs: an image written into the request itself."""

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from app.errors import InvalidWork

_PREFIX = re.compile(r"data:", re.IGNORECASE)
_MOVING = re.compile(r"\s*data:\s*(video|audio)/", re.IGNORECASE)
# A line break, with the indentation around it, is how mail programs and YAML fold long texts.
_FOLD = re.compile(r"[ \t]*[\r\n]+[ \t]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_URL_SAFE = str.maketrans("-_", "+/")


def unsupported_modality(kind: str) -> InvalidWork:
    """What a client is told that sends `video` or `audio`."""
    instead = "single frames as images" if kind == "video" else "its transcript as text"
    return InvalidWork(
        "unsupported_modality", f"This service reads text and images, not {kind}: send {instead} instead."
    )


def is_data_url(text: str) -> bool:
    return _PREFIX.match(text) is not None


def decode_data_url(text: str) -> bytes:
    """The bytes of a data URL, whatever image it declares: what they are is seen from themselves.

    Base64 may be URL-safe, percent-encoded, folded over lines and without padding; percent-encoded bytes
    without base64 are read too. Raises InvalidWork: `unsupported_modality`, `bad_data_url`, `bad_base64`,
    `empty_body`.
    """
    if found := _MOVING.match(text):
        raise unsupported_modality(found[1].lower())
    head, comma, body = text.strip()[len("data:") :].partition(",")
    if not is_data_url(text.strip()) or not comma:
        raise InvalidWork(
            "bad_data_url",
            "The data URL is malformed: it has no comma. Write data:image/png;base64, and then base64 text.",
        )
    is_base64 = head.rpartition(";")[2].strip().lower() == "base64"
    data = _decode_base64(body) if is_base64 else _decode_percent(body)
    if not data:
        raise InvalidWork("empty_body", "The data URL is empty: no data (0 bytes) follows the comma.")
    return data


def _decode_percent(body: str) -> bytes:
    return unquote_to_bytes(body.partition("#")[0].encode("utf-8", "replace"))


def _decode_base64(body: str) -> bytes:
    if "%" in body:
        body = unquote_to_bytes(body.encode("utf-8", "replace")).decode("latin-1")
    text = _FOLD.sub("", body).strip().translate(_URL_SAFE)
    digits = text.rstrip("=")
    if len(text) - len(digits) > 2:
        raise _bad_base64("it has too much padding")
    if not _BASE64.fullmatch(digits):
        raise _bad_base64(_strange_character(digits))
    if len(digits) % 4 == 1:
        raise _bad_base64(
            f"{len(digits)} characters cannot be whole bytes, so that it was probably truncated"
        )
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4))
    except binascii.Error as error:
        raise _bad_base64("it cannot be decoded") from error


def _strange_character(digits: str) -> str:
    position = next(at for at, digit in enumerate(digits) if not _BASE64.fullmatch(digit))
    if digits[position] == " ":
        return f"a space at position {position}; was a '+' turned into a space on the way?"
    return f"invalid character {digits[position]!a} at position {position}"


def _bad_base64(what: str) -> InvalidWork:
    return InvalidWork("bad_base64", f"The data URL's base64 is invalid: {what}.")
