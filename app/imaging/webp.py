"""Reads WebP headers from the chunks of the RIFF container."""

import struct
from collections.abc import Iterator

from app.imaging.formats import Format
from app.imaging.header import MAX_ICC_BYTES, Header, corrupt
from app.imaging.tags import exif_orientation

_RIFF = 12  # bytes before the first chunk


def read_webp(data: bytes) -> Header:
    """The header of the canvas; raises ImageError."""
    width, height = _size(data)
    others = {name: body for name, body in _chunks(data) if name in (b"ICCP", b"EXIF")}
    icc = others.get(b"ICCP", b"")
    return Header(
        format=Format.WEBP,
        width=width,
        height=height,
        parts=(data,),
        orientation=exif_orientation(others.get(b"EXIF", b"")),
        icc=icc if 0 < len(icc) <= MAX_ICC_BYTES else None,
    )


def _size(data: bytes) -> tuple[int, int]:
    name, body = data[12:16], data[20:30]
    if name == b"VP8X" and len(body) == 10:
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if name == b"VP8L" and len(body) >= 5 and body[0] == 0x2F:
        packed = int.from_bytes(body[1:5], "little")
        return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    if name == b"VP8 " and len(body) == 10 and body[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<2H", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    raise corrupt(Format.WEBP, "its first chunk is no picture header")


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and body of each whole chunk. Pixel chunks are skipped, not copied."""
    at = _RIFF
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        if at + 8 + length > len(data):
            return
        if name in (b"ICCP", b"EXIF"):
            yield name, data[at + 8 : at + 8 + length]
        at += 8 + length + (length & 1)
