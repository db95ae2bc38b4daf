"""Reads JPEG headers, MPO among them: an MPO is a JPEG with more pictures behind the first."""

import re

from app.imaging.formats import Format
from app.imaging.header import MAX_ICC_BYTES, Header, corrupt, too_complex, unsupported
from app.imaging.tags import exif_orientation

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_STANDALONE = frozenset({0x01, _SOI, *range(0xD0, 0xD8)})  # markers without a length
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EXIF, _ICC = 0xE1, 0xE2
# APP0 (JFIF) and APP14 (Adobe) say how colours are stored. The rest is metadata.
_METADATA = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})
# Encoders write about 10 scans. Each is a pass over all pixels, so that thousands would take minutes.
_MAX_SCANS = 100
_MARKER_IN_SCAN = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


class _Reader:
    """Walks the segments up to the first scan, then counts scans up to the end of the first picture."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.view = memoryview(data)
        self.parts: list[memoryview] = []
        self.kept = 0  # everything before it is in `parts` or was dropped
        self.frame: bytes | None = None
        self.orientation: int | None = None
        self.profile: dict[int, bytes] = {}

    def read(self) -> Header:
        at = self._segments()
        if self.frame is None or len(self.frame) < 6:
            raise corrupt(Format.JPEG, "it has no frame header")
        end = self._scans(at)
        parts = (
            (self.data,)
            if not self.parts and end >= len(self.data)
            else (*self.parts, self.view[self.kept : end])
        )
        return Header(
            format=Format.JPEG,
            width=int.from_bytes(self.frame[3:5], "big"),
            height=int.from_bytes(self.frame[1:3], "big"),
            parts=parts,
            orientation=self.orientation or 1,
            icc=self._icc(),
        )

    def _segments(self) -> int:
        """Read every segment before the first scan; gives the position of the scan's header."""
        data, at = self.data, 2
        while (at := data.find(b"\xff", at)) >= 0:
            start = at
            while at < len(data) and data[at] == 0xFF:
                at += 1
            marker = data[at] if at < len(data) else _EOI
            at += 1
            if marker == _SOS:
                return at
            if marker == _EOI:
                break
            if marker == 0 or marker in _STANDALONE:
                continue
            at = self._segment(marker, start, at)
        raise corrupt(Format.JPEG, "it ends before the picture begins")

    def _segment(self, marker: int, start: int, at: int) -> int:
        length = int.from_bytes(self.data[at : at + 2], "big")
        if length < 2 or at + length > len(self.data):
            raise corrupt(Format.JPEG, "a header segment is cut off")
        end = at + length
        if marker in _METADATA:
            self._metadata(marker, self.data[at + 2 : end])
            self.parts.append(self.view[self.kept : start])
            self.kept = end
        elif marker in _FRAMES and self.frame is None:
            self.frame = self.data[at + 2 : end]
            _check_frame(self.frame)
        return end

    def _metadata(self, marker: int, body: bytes) -> None:
        if marker == _EXIF and self.orientation is None and body.startswith(b"Exif\0\0"):
            self.orientation = exif_orientation(body)
        elif marker == _ICC and body.startswith(b"ICC_PROFILE\0") and len(body) > 14:
            self.profile[body[12]] = body[14:]

    def _scans(self, at: int) -> int:
        """Count scans; gives the end of the first picture, or of the data where no end is marked."""
        scans = 1
        while found := _MARKER_IN_SCAN.search(self.data, at):
            marker, at = found[1][0], found.end()
            if marker == _EOI:
                return at
            scans += marker == _SOS
            if scans > _MAX_SCANS:
                raise too_complex(Format.JPEG, f"more than {_MAX_SCANS} scans")
            at += 0 if marker in _STANDALONE else int.from_bytes(self.data[at : at + 2], "big")
        return len(self.data)

    def _icc(self) -> bytes | None:
        profile = b"".join(self.profile[number] for number in sorted(self.profile))
        return profile if 0 < len(profile) <= MAX_ICC_BYTES else None


def _check_frame(frame: bytes) -> None:
    if len(frame) >= 6 and frame[0] != 8:
        raise unsupported(Format.JPEG, f"{frame[0]} bits per sample")
    if len(frame) >= 6 and frame[5] not in (1, 3, 4):
        raise unsupported(Format.JPEG, f"{frame[5]} colour components")


def read_jpeg(data: bytes) -> Header:
    """The header of the first picture; raises ImageError (corrupt_image, unsupported_format, too_complex)."""
    return _Reader(data).read()
