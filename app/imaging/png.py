"""Reads PNG headers and leaves out every chunk that does not shape the still picture's pixels."""

import struct
import zlib

from app.imaging.formats import Format
from app.imaging.header import MAX_ICC_BYTES, Header, corrupt, too_complex, truncated
from app.imaging.tags import exif_orientation

_SIGNATURE = 8
# Text chunks (a few bytes may unpack to gigabytes) and animation chunks are among those left out.
_PIXELS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
# The decoder does not check these itself, and shows what follows a cut as black.
_CHECKED = _PIXELS - {b"IEND"}
# Encoders cut IDAT at 8 KiB or more; a decoder needs microseconds for each, so that millions would take long.
_MAX_CHUNKS = 65_536


def read_png(data: bytes) -> Header:
    """The header of the still picture (an APNG's default image); raises ImageError."""
    if data[12:16] != b"IHDR" or len(data) < 33:
        raise truncated(Format.PNG, "it ends within the header")
    width, height, bits = struct.unpack_from(">IIB", data, 16)
    chunks = _chunks(data)
    if not any(name == b"IDAT" for name, _, _ in chunks):
        raise corrupt(Format.PNG, "it has no picture data")
    for name, start, end in chunks:
        if name in _CHECKED:
            _check_sum(data, start, end)
    bodies = {
        name: data[start + 8 : end - 4] for name, start, end in reversed(chunks) if name in (b"eXIf", b"iCCP")
    }
    return Header(
        format=Format.PNG,
        width=width,
        height=height,
        parts=_kept(data, chunks),
        orientation=exif_orientation(bodies.get(b"eXIf", b"")),
        icc=_profile(bodies.get(b"iCCP", b"")),
        bits=bits,
    )


def _chunks(data: bytes) -> list[tuple[bytes, int, int]]:
    """Name, start and end of each chunk up to IEND; the last may be cut off."""
    chunks: list[tuple[bytes, int, int]] = []
    at = _SIGNATURE
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if not name.isalpha():
            break
        chunks.append((name, at, min(at + 12 + length, len(data))))
        if name == b"IEND":
            break
        if len(chunks) > _MAX_CHUNKS:
            raise too_complex(Format.PNG, f"more than {_MAX_CHUNKS} chunks")
        at += 12 + length
    return chunks


def _check_sum(data: bytes, start: int, end: int) -> None:
    length = int.from_bytes(data[start : start + 4], "big")
    if end - start < 12 + length:
        raise truncated(Format.PNG, "it ends early")
    if zlib.crc32(memoryview(data)[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
        raise corrupt(Format.PNG, "a checksum is wrong")


def _kept(data: bytes, chunks: list[tuple[bytes, int, int]]) -> tuple[bytes | memoryview, ...]:
    """The file without its other chunks, as few slices as there are gaps."""
    spans = [[0, _SIGNATURE]]
    for name, start, end in chunks:
        if name not in _PIXELS:
            continue
        if spans[-1][1] == start:
            spans[-1][1] = end
        else:
            spans.append([start, end])
    if spans == [[0, len(data)]]:
        return (data,)
    view = memoryview(data)
    return tuple(view[start:end] for start, end in spans)


def _profile(body: bytes) -> bytes | None:
    """The profile of an iCCP chunk; None where it is broken, or larger than any real one."""
    _, _, packed = body.partition(b"\0")
    try:
        unpacker = zlib.decompressobj()
        profile = unpacker.decompress(packed[1:], MAX_ICC_BYTES)
    except zlib.error:
        return None
    return profile if profile and not unpacker.unconsumed_tail else None
