"""Reads TIFF headers and writes a directory that holds the first page's pixel tags only."""

import struct

from app.imaging.formats import Format
from app.imaging.header import MAX_ICC_BYTES, Header, too_complex, truncated, unsupported
from app.imaging.tags import ORIENTATION, Directory, Tag, read_directory

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_SUBFILE, _SAMPLES, _SAMPLE_FORMAT, _TILE_WIDTH, _TILE_HEIGHT = 254, 277, 339, 322, 323
_ICC, _DNG_VERSION = 34675, 50706
# What shapes the pixels. Left out: orientation and XMP (ours to apply, once), EXIF, previews, later pages.
_PIXEL_TAGS = frozenset({
    _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, 266, 273, 277, 278, 279, 284, 292, 293, 317, 320,
    _TILE_WIDTH, _TILE_HEIGHT, 324, 325, 338, _SAMPLE_FORMAT, 347, 529, 530, 531, 532,
})  # fmt: skip
# None, CCITT (3), LZW, JPEG, Deflate (2), PackBits: what scanners and editors write.
_COMPRESSIONS = frozenset({1, 2, 3, 4, 5, 7, 8, 32946, 32773})
_FLOAT = 3
_MAX_SAMPLES = 6  # four inks and two more
_MAX_STRIPS = 65_536


def read_tiff(data: bytes, max_pixels: int) -> Header:
    """The header of the first page; raises ImageError.

    `max_pixels` bounds a tile too: a decoder makes room for a whole tile, however small the picture.
    """
    directory = read_directory(data)
    if directory is None:
        raise truncated(Format.TIFF, "its first directory is missing")
    _check_layout(directory)
    if directory.number(_TILE_WIDTH, 0) * directory.number(_TILE_HEIGHT, 0) > max_pixels:
        raise too_complex(Format.TIFF, f"tiles of more than {max_pixels} pixels")
    orientation = directory.number(ORIENTATION, 1)
    icc = directory.value(_ICC)
    return Header(
        format=Format.TIFF,
        width=directory.number(_WIDTH, 0),
        height=directory.number(_HEIGHT, 0),
        parts=_pixel_parts(data, directory),
        orientation=orientation if 1 <= orientation <= 8 else 1,
        icc=icc if icc and len(icc) <= MAX_ICC_BYTES else None,
        inverted=_inverts(directory),
    )


def _check_layout(directory: Directory) -> None:
    if _DNG_VERSION in directory.tags or directory.number(_SUBFILE, 0) & 1:
        raise unsupported(Format.TIFF, "camera raw data (its first page is a preview)")
    compression = directory.number(_COMPRESSION, 1)
    if compression not in _COMPRESSIONS:
        raise unsupported(Format.TIFF, f"compression {compression}")
    if _FLOAT in directory.numbers(_SAMPLE_FORMAT):
        raise unsupported(Format.TIFF, "float samples")
    if not 1 <= directory.number(_SAMPLES, 1) <= _MAX_SAMPLES:
        raise unsupported(Format.TIFF, f"{directory.number(_SAMPLES, 1)} samples per pixel")
    bits = directory.numbers(_BITS) or (1,)
    if not set(bits) <= {1, 2, 4, 8, 16}:
        raise unsupported(Format.TIFF, f"{max(bits)} bits per sample")


def _pixel_parts(data: bytes, directory: Directory) -> tuple[bytes | memoryview, ...]:
    """The file with a directory of pixel tags behind it, to which the file's head now points."""
    tags = [tag for code, tag in sorted(directory.tags.items()) if code in _PIXEL_TAGS]
    if any(tag.offset + tag.size > len(data) for tag in tags):
        raise truncated(Format.TIFF, "a value lies behind the end of the file")
    if any(tag.count > _MAX_STRIPS for tag in tags if tag.code in (273, 279, 324, 325)):
        raise too_complex(Format.TIFF, f"more than {_MAX_STRIPS} strips or tiles")
    if not _strips_fit(directory, (273, 279)) or not _strips_fit(directory, (324, 325)):
        raise truncated(Format.TIFF, "its pixels end early")
    order = directory.order
    pad = b"\0" * (len(data) % 2)
    start = struct.pack(f"{order}I", len(data) + len(pad))
    count = struct.pack(f"{order}H", len(tags))
    entries = b"".join(_entry(tag, directory) for tag in tags)
    return (data[:4], start, memoryview(data)[8:], pad, count, entries, b"\0\0\0\0")


def _entry(tag: Tag, directory: Directory) -> bytes:
    """A tag as the decoder gets it. It does not know 16-bit grey in which white is zero: ours to invert."""
    if tag.code == _PHOTOMETRIC and _inverts(directory):
        return struct.pack(f"{directory.order}HHIHH", _PHOTOMETRIC, 3, 1, 1, 0)
    return tag.entry


def _inverts(directory: Directory) -> bool:
    return directory.number(_PHOTOMETRIC, 1) == 0 and directory.number(_BITS, 1) == 16


def _strips_fit(directory: Directory, codes: tuple[int, int]) -> bool:
    """Whether all strips or tiles lie within the file; the new directory behind it would pass for pixels."""
    offsets, lengths = (directory.numbers(code, _MAX_STRIPS) for code in codes)
    return all(at + length <= len(directory.block) for at, length in zip(offsets, lengths, strict=False))
