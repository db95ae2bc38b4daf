"""Reads JPEG headers, MPO among them: an MPO is a JPEG with more pictures behind the first."""

import re

from app.imaging.formats import Format
from app.imaging.header import MAX_ICC_BYTES, Header, corrupt, too_complex, truncated, unsupported
from app.imaging.tags import exif_orientation

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_STANDALONE = frozenset({0x01, _SOI})  # markers without a length
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_EXIF, _ICC = 0xE1, 0xE2
# APP0 (JFIF) and APP14 (Adobe) say how colours are stored. The rest is metadata.
_METADATA = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})
# Encoders write about 10 scans. Each is a pass over all pixels, so that thousands would take minutes.
_MAX_SCANS = 100
# Neither a stuffed zero, a fill byte nor a restart. One byte at a time, which keeps a flood of 0xFF linear.
_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_MAX_SEGMENTS = 4096  # the largest files hold hundreds: 64 KB each


class _Reader:
    """Walks the segments up to the first scan."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.view = memoryview(data)
        self.parts: list[memoryview] = []
        self.kept = 0  # everything before it is in `parts` or was dropped
        self.frame: bytes | None = None
        self.progressive = False
        self.orientation: int | None = None
        self.profile: dict[int, bytes] = {}

    def read(self) -> Header:
        at = self._segments()
        if self.frame is None or len(self.frame) < 6:
            raise corrupt(Format.JPEG, "it has no frame header")
        if self.progressive or self.data[at + 2 : at + 3] != self.frame[5:6]:  # else one scan holds it all
            _check_scans(self.data, at)
        parts = (*self.parts, self.view[self.kept :]) if self.parts else (self.data,)
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
        at = 2
        for _ in range(_MAX_SEGMENTS):
            found = _MARKER.search(self.data, at)
            marker, at = (found[1][0], found.end()) if found else (_EOI, at)
            if marker == _SOS:
                return at
            if found is None or marker == _EOI:
                raise truncated(Format.JPEG, "it ends before the picture begins")
            if marker not in _STANDALONE:
                at = self._segment(marker, found.start(), at)
        raise too_complex(Format.JPEG, f"more than {_MAX_SEGMENTS} segments before the picture")

    def _segment(self, marker: int, start: int, at: int) -> int:
        length = int.from_bytes(self.data[at : at + 2], "big")
        if length < 2 or at + length > len(self.data):
            raise truncated(Format.JPEG, "a header segment is cut off")
        end = at + length
        if marker in _METADATA:
            self._metadata(marker, self.data[at + 2 : end])
            self.parts.append(self.view[self.kept : start])
            self.kept = end
        elif marker in _FRAMES and self.frame is None:
            self.frame = self.data[at + 2 : end]
            self.progressive = marker in _PROGRESSIVE
            _check_frame(self.frame)
        return end

    def _metadata(self, marker: int, body: bytes) -> None:
        if marker == _EXIF and self.orientation is None and body.startswith(b"Exif\0\0"):
            self.orientation = exif_orientation(body)
        elif marker == _ICC and body.startswith(b"ICC_PROFILE\0") and len(body) > 14:
            self.profile[body[12]] = body[14:]

    def _icc(self) -> bytes | None:
        profile = b"".join(self.profile[number] for number in sorted(self.profile))
        return profile if 0 < len(profile) <= MAX_ICC_BYTES else None


def _check_scans(data: bytes, at: int) -> None:
    """Count the scans of the first picture, the first of which begins at `at`."""
    if (
        data.count(bytes([0xFF, _SOS]), at) < _MAX_SCANS
    ):  # fast; it counts chance hits in what follows as well
        return
    scans = 1
    while (found := _MARKER.search(data, at)) and found[1][0] != _EOI:
        marker, at = found[1][0], found.end()
        scans += marker == _SOS
        if scans > _MAX_SCANS:
            raise too_complex(Format.JPEG, f"more than {_MAX_SCANS} scans")
        at += 0 if marker in _STANDALONE else int.from_bytes(data[at : at + 2], "big")


def _check_frame(frame: bytes) -> None:
    if len(frame) >= 6 and frame[0] != 8:
        raise unsupported(Format.JPEG, f"{frame[0]} bits per sample")
    if len(frame) >= 6 and frame[5] not in (1, 3, 4):
        raise unsupported(Format.JPEG, f"{frame[5]} colour components")


def read_jpeg(data: bytes) -> Header:
    """The header of the first picture; raises ImageError (corrupt_image, unsupported_format, too_complex)."""
    return _Reader(data).read()
