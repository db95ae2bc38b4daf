"""Reads GIF headers: the canvas, and the first frame with nothing of the later ones."""

import struct

from app.imaging.formats import Format
from app.imaging.header import Header, corrupt

_SCREEN = 13  # bytes of signature and screen descriptor
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9  # holds the transparent index


def read_gif(data: bytes) -> Header:
    """The header of the first frame on its canvas; raises ImageError."""
    if len(data) < _SCREEN:
        raise corrupt(Format.GIF, "it ends within the header")
    screen_end = _SCREEN + _palette_bytes(data[10])
    control, at = _find_image(data, screen_end)
    if len(data) < at + 11:
        raise corrupt(Format.GIF, "it ends within the first frame's header")
    left, top, width, height, flags = struct.unpack_from("<4HB", data, at + 1)
    end = _skip_blocks(data, at + 11 + _palette_bytes(flags))
    canvas_width, canvas_height = struct.unpack_from("<2H", data, 6)
    if not width or not height:
        raise corrupt(Format.GIF, "its first frame has zero width or height")
    return Header(
        format=Format.GIF,
        width=max(canvas_width, left + width),
        height=max(canvas_height, top + height),
        parts=(data[:screen_end], control, data[at:end], bytes([_TRAILER])),
        frame=(left, top, left + width, top + height),
    )


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _find_image(data: bytes, at: int) -> tuple[bytes, int]:
    """The graphic control extension that rules the first frame (or nothing), and where that frame begins."""
    control = b""
    while at < len(data) and data[at] != _TRAILER:
        if data[at] == _IMAGE:
            return control, at
        if data[at] == _EXTENSION:
            end = _skip_blocks(data, at + 2)
            if data[at + 1 : at + 2] == bytes([_GRAPHIC_CONTROL]):
                control = data[at:end]
            at = end
        else:
            at += 1
    raise corrupt(Format.GIF, "it holds no frame")


def _skip_blocks(data: bytes, at: int) -> int:
    """The position behind a chain of data blocks; the end of the data where the chain is cut."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return min(at + 1, len(data))
