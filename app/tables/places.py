"""Bucket prefixes as clients name them in place of a file: `s3://bucket/prefix`. Pure."""

import re
from dataclasses import dataclass

from app.checks import is_unicode
from app.errors import RequestError

_PLACE = re.compile(r"s3://([A-Za-z0-9][A-Za-z0-9._-]{1,254})(?:/(.*))?", re.DOTALL)
MOST_KEY_BYTES = 1024  # S3's own


@dataclass(frozen=True)
class Place:
    bucket: str
    prefix: str

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def is_place(input_file_id: str) -> bool:
    return input_file_id.startswith("s3://")


def read_place(input_file_id: str) -> Place:
    """RequestError for what is no bucket prefix."""
    found = _PLACE.fullmatch(input_file_id)
    prefix = (found[2] or "") if found else ""
    if found is None or not is_unicode(prefix) or len(prefix.encode()) > MOST_KEY_BYTES:
        message = "The input file is no bucket prefix: write s3://bucket/prefix."
        raise RequestError(message, param="input_file_id", code="invalid_value")
    return Place(found[1], prefix)
