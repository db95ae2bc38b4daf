"""Reads BMP headers."""

import struct

from app.imaging.formats import Format
from app.imaging.header import Header, corrupt, truncated

_CORE = 12  # bytes of the oldest header, whose sizes are 16-bit


def read_bmp(data: bytes) -> Header:
    """The header; a negative height (rows from the top) is made positive. Raises ImageError."""
    if len(data) < 26:
        raise truncated(Format.BMP, "it ends within the header")
    if int.from_bytes(data[14:18], "little") == _CORE:
        width, height = struct.unpack_from("<2H", data, 18)
    else:
        width, height = struct.unpack_from("<2i", data, 18)
    if width < 0:
        raise corrupt(Format.BMP, "its width is negative")
    return Header(format=Format.BMP, width=width, height=abs(height), parts=(data,))
