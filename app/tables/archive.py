"""A zip of images: each member is a row, read by itself and never written to disk by its name."""

import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from app.config import MIB
from app.tables.base import Cell, Row, RowProblem, refused, said
from app.tables.names import COLUMNS, is_image_name

# The list of members at the archive's end is read at once: 200,000 of them take 16 MiB or so.
MOST_READ = 16 * MIB
READ_BYTES = 256 * 1024
# What all members unpacked may come to: images hardly shrink, and small archives may have what they like.
MOST_RATIO, SMALL_BYTES = 100, 1024 * MIB
# bz2 and LZMA unpack without bounds in zipfile, and nobody needs them for images.
METHODS = (ZIP_STORED, ZIP_DEFLATED)
ENCRYPTED = 0x1

_DAMAGES = (BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, OSError, zlib.error)


class ZippedImages:
    """The members that are named like images, in the archive's order; all, where none has such a name."""

    columns = COLUMNS
    texts = (1,)

    def __init__(self, file: BinaryIO, *, size: int, image_max_bytes: int) -> None:
        self._image_max_bytes = image_max_bytes
        try:
            self._zip = ZipFile(file)
        except _DAMAGES as error:
            raise refused(
                "invalid_zip", f"The file is not a zip archive, or is damaged: {said(error)}."
            ) from error
        self._members = _members(self._zip.infolist())
        _check_sizes(self._members, size)

    @property
    def count(self) -> int:
        return len(self._members)

    def rows(self, columns: Sequence[int], *, after: int = 0) -> Iterator[Row]:
        for number, member in enumerate(self._members[after:], after + 1):
            read = self._read(member) if 0 in columns else None
            if isinstance(read, RowProblem):
                yield Row(number, (), read)
                continue
            cells: tuple[Cell, Cell] = (read, member.filename)
            yield Row(number, [cells[at] for at in columns])

    def _read(self, member: ZipInfo) -> bytes | RowProblem:
        if member.flag_bits & ENCRYPTED:
            return _unreadable(member, "is encrypted: pack it without a password")
        if member.compress_type not in METHODS:
            return _unreadable(member, "is packed in an unusual way: use the method deflate")
        if member.file_size > self._image_max_bytes:
            message = f"{member.filename!a} has {member.file_size:,} bytes: over {self._image_max_bytes:,}."
            return RowProblem("too_large", message, COLUMNS[0])
        try:
            with self._zip.open(member) as stream:
                # In pieces: zipfile unpacks no more than it is asked for, and never more than the size above.
                return b"".join(iter(lambda: stream.read(READ_BYTES), b""))
        except _DAMAGES as error:
            return _unreadable(member, f"is damaged: {said(error)}")


def _members(found: Sequence[ZipInfo]) -> list[ZipInfo]:
    """Without folders and what macOS and Windows leave in archives."""
    files = [one for one in found if not one.is_dir() and not _is_litter(one.filename)]
    return [one for one in files if is_image_name(one.filename)] or files


def _is_litter(name: str) -> bool:
    last = name.rpartition("/")[2]
    return name.startswith("__MACOSX/") or last.startswith("._") or last in (".DS_Store", "Thumbs.db")


def _check_sizes(members: Sequence[ZipInfo], size: int) -> None:
    packed = sum(member.compress_size for member in members)
    unpacked = sum(member.file_size for member in members)
    if packed > size or unpacked > max(SMALL_BYTES, MOST_RATIO * size):
        message = f"The archive of {size:,} bytes claims to hold {unpacked:,}: it looks like a zip bomb."
        raise refused("zip_bomb", message)


def _unreadable(member: ZipInfo, why: str) -> RowProblem:
    return RowProblem("invalid_zip_member", f"{member.filename!a} {why}.", COLUMNS[0])
