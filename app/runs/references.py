"""What a cell of an image column is: an image that the service can get by itself, or a file here. Pure."""

import re
from pathlib import PurePath

SENT_AS_IT_IS = re.compile(r"(https?|s3|data|ftp|file|gs):|file-[0-9a-zA-Z]{8,}$", re.IGNORECASE)
SUFFIXES = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic"}
)


def may_be_local(text: str) -> bool:
    return bool(text) and "\0" not in text and not SENT_AS_IT_IS.match(text)


def names_file(text: str) -> bool:
    """A file of this machine, named as a URL; which nobody sends."""
    return text.lower().startswith("file:")


def looks_like_picture(text: str) -> bool:
    """Whether somebody would take this for an image: a URL, or a name that ends as pictures do."""
    is_url = SENT_AS_IT_IS.match(text) is not None
    return is_url or has_picture_suffix(text)


def has_picture_suffix(name: str) -> bool:
    return PurePath(name).suffix.lstrip(".").lower() in SUFFIXES
