"""Reads GIF headers: the canvas, and the first frame with nothing of the later ones."""

import re
import struct

from app.imaging.formats import Format
from app.imaging.header import Header, corrupt, too_complex, truncated

_SCREEN = 13  # bytes of signature and screen descriptor
_IMAGE, _TRAILER = b",", b";"
_INTRODUCER = re.compile(rb"[!,;]")  # of an extension, a frame, the end; decoders skip what lies between
_GRAPHIC_CONTROL = b"\xf9"  # holds the transparent index
_MAX_EXTENSIONS = 4096


def read_gif(data: bytes) -> Header:
    """The header of the first frame on its canvas; raises ImageError."""
    if len(data) < _SCREEN:
        raise truncated(Format.GIF, "it ends within the header")
    screen_end = _SCREEN + _palette_bytes(data[10])
    control, at = _find_image(data, screen_end)
    if len(data) < at + 11:
        raise truncated(Format.GIF, "it ends within the first frame's header")
    left, top, width, height, flags = struct.unpack_from("<4HB", data, at + 1)
    end = _skip_blocks(data, at + 11 + _palette_bytes(flags))
    canvas_width, canvas_height = struct.unpack_from("<2H", data, 6)
    if not width or not height:
        raise corrupt(Format.GIF, "its first frame has zero width or height")
    return Header(
        format=Format.GIF,
        width=max(canvas_width, left + width),
        height=max(canvas_height, top + height),
        parts=(data[:screen_end], control, data[at:end], _TRAILER),
        frame=(left, top, left + width, top + height),
    )


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _find_image(data: bytes, at: int) -> tuple[bytes, int]:
    """The graphic control extension that rules the first frame (or nothing), and where that frame begins."""
    control = b""
    for _ in range(_MAX_EXTENSIONS):
        found = _INTRODUCER.search(data, at)
        if found is None or found[0] == _TRAILER:
            raise corrupt(Format.GIF, "it holds no frame")
        at = found.start()
        if found[0] == _IMAGE:
            return control, at
        end = _skip_blocks(data, at + 2)
        if data[at + 1 : at + 2] == _GRAPHIC_CONTROL:
            control = data[at:end]
        at = end
    raise too_complex(Format.GIF, f"more than {_MAX_EXTENSIONS} extensions before its first frame")


def _skip_blocks(data: bytes, at: int) -> int:
    """The position behind a chain of data blocks; the end of the data where the chain is cut."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return min(at + 1, len(data))
