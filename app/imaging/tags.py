"""Reads the tags of a TIFF directory: of TIFF files, and of EXIF blocks, which are small TIFF files."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

ORIENTATION = 0x0112
_ENTRY = 12  # bytes of one directory entry
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_SHORT, _LONG = 3, 4


@dataclass(frozen=True)
class Tag:
    """One entry: where its value lies (`offset` into the block) and how it is written."""

    code: int
    type: int
    count: int
    offset: int
    entry: bytes

    @property
    def size(self) -> int:
        """Bytes of the value; 0 for a type that TIFF does not define."""
        return _TYPE_BYTES.get(self.type, 0) * self.count


@dataclass(frozen=True)
class Directory:
    """The first directory of a TIFF block."""

    block: bytes
    order: str  # struct's byte order: "<" or ">"
    tags: Mapping[int, Tag]

    def numbers(self, code: int, limit: int = 16) -> tuple[int, ...]:
        """Up to `limit` unsigned numbers of a tag; empty where the tag is missing or is of another type."""
        tag = self.tags.get(code)
        if tag is None or tag.type not in (1, _SHORT, _LONG):
            return ()
        letter = {1: "B", _SHORT: "H", _LONG: "I"}[tag.type]
        count = min(tag.count, limit)
        value = self.block[tag.offset : tag.offset + count * _TYPE_BYTES[tag.type]]
        if len(value) < count * _TYPE_BYTES[tag.type]:
            return ()
        return struct.unpack(f"{self.order}{count}{letter}", value)

    def number(self, code: int, default: int) -> int:
        return next(iter(self.numbers(code, 1)), default)

    def value(self, code: int) -> bytes | None:
        """The raw bytes of a tag, or None where it is missing or lies outside the block."""
        tag = self.tags.get(code)
        if tag is None or tag.offset + tag.size > len(self.block):
            return None
        return self.block[tag.offset : tag.offset + tag.size]


def read_directory(block: bytes) -> Directory | None:
    """The first directory of `block`, with the entries that are there; None if it is no TIFF block."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if order is None or len(block) < 8:
        return None
    start = struct.unpack_from(f"{order}I", block, 4)[0]
    if start < 8 or start + 2 > len(block):
        return None
    count = struct.unpack_from(f"{order}H", block, start)[0]
    entries = (block[at : at + _ENTRY] for at in range(start + 2, start + 2 + count * _ENTRY, _ENTRY))
    tags = [
        _read_tag(entry, order, start + 2 + index * _ENTRY)
        for index, entry in enumerate(entries)
        if len(entry) == _ENTRY
    ]
    return Directory(block=block, order=order, tags={tag.code: tag for tag in reversed(tags)})


def _read_tag(entry: bytes, order: str, at: int) -> Tag:
    code, type_, count, offset = struct.unpack(f"{order}HHII", entry)
    inline = _TYPE_BYTES.get(type_, 0) * count <= 4
    return Tag(code=code, type=type_, count=count, offset=at + 8 if inline else offset, entry=entry)


def exif_orientation(block: bytes) -> int:
    """EXIF orientation 1 to 8 of an EXIF block; 1 (upright) for a block that is broken or says nothing.

    Broken metadata never refuses a picture whose pixels are fine.
    """
    directory = read_directory(block.removeprefix(b"Exif\0\0"))
    orientation = 1 if directory is None else directory.number(ORIENTATION, 1)
    return orientation if 1 <= orientation <= 8 else 1
