"""Accepts an image: its header is checked first, then it becomes upright 8-bit sRGB over white."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PIL import Image

from app.config import Settings
from app.errors import ImageError
from app.imaging.avif import read_avif
from app.imaging.bmp import read_bmp
from app.imaging.colour import WHITE, eight_bits, to_srgb
from app.imaging.decode import decode
from app.imaging.formats import Format, sniff
from app.imaging.gif import read_gif
from app.imaging.header import Header, corrupt
from app.imaging.jpeg import read_jpeg
from app.imaging.png import read_png
from app.imaging.tiff import read_tiff
from app.imaging.webp import read_webp

# Part of every key under which pixels or what was made of them is cached: raise it when pixels change.
NORMALISER_VERSION = "1"

# The model's processor refuses sides more unequal than this; exactly 200 passes.
MAX_ASPECT_RATIO = 200

# Above it Pillow warns of a decompression bomb by itself, for the whole process.
MAX_PIXELS_CEILING = 89_478_485

_READERS: Mapping[Format, Callable[[bytes], Header]] = {
    Format.JPEG: read_jpeg,
    Format.PNG: read_png,
    Format.GIF: read_gif,
    Format.WEBP: read_webp,
    Format.BMP: read_bmp,
    Format.AVIF: read_avif,
}

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Limits:
    """What is accepted: bytes of the file, and width x height as its header says."""

    max_bytes: int = 20 * 2**20
    max_pixels: int = 50_000_000

    def __post_init__(self) -> None:
        if self.max_pixels > MAX_PIXELS_CEILING:
            raise ValueError(f"max_pixels can be at most {MAX_PIXELS_CEILING}")


def image_limits(settings: Settings) -> Limits:
    """The limits that the settings name."""
    return Limits(max_bytes=settings.image_max_bytes, max_pixels=settings.image_max_pixels)


@dataclass(frozen=True)
class ImageInfo:
    """What an image is; width and height in pixels as shown upright."""

    format: Format
    content_type: str
    width: int
    height: int


def content_hash(data: bytes) -> str:
    """Hex sha256 of the original bytes."""
    return hashlib.sha256(data).hexdigest()


def inspect(data: bytes, limits: Limits) -> ImageInfo:
    """Check an image by its header, without making a raster.

    Raises ImageError; docs/images.md lists the codes. Truncated pixel data is found by `normalise` only.
    """
    header = _read_header(data, limits)
    width, height = header.upright_size
    return ImageInfo(header.format, header.format.content_type, width, height)


def normalise(data: bytes, limits: Limits, *, small: int | None = None) -> Image.Image:
    """The first picture in `data` as an RGB image: upright, sRGB, 8 bits, transparent parts over white.

    Where only a picture of some `small` pixels a side is needed, a JPEG may come out smaller than it is.
    Thread-safe: no global state of Pillow is changed. Raises ImageError.
    """
    header = _read_header(data, limits)
    rgb = to_srgb(eight_bits(decode(header, small), header), header.icc)
    upright = _TURNS.get(header.orientation)
    rgb = _on_canvas(rgb, header)
    return rgb if upright is None else rgb.transpose(upright)


def _read_header(data: bytes, limits: Limits) -> Header:
    format_ = sniff(data)
    if len(data) > limits.max_bytes:
        raise ImageError(
            "too_large",
            f"The image has {len(data)} bytes; the limit is {limits.max_bytes}. Send a smaller file.",
        )
    header = read_tiff(data, limits.max_pixels) if format_ is Format.TIFF else _READERS[format_](data)
    _check_size(header, limits)
    return header


def _check_size(header: Header, limits: Limits) -> None:
    width, height = header.upright_size
    if not width or not height:
        raise corrupt(header.format, f"its header says zero width or height ({width} x {height})")
    if width * height > limits.max_pixels:
        raise ImageError(
            "too_many_pixels",
            f"The image is {width} x {height} pixels, {width * height} in all; the limit is "
            f"{limits.max_pixels}. Send a smaller picture.",
        )
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise ImageError(
            "aspect_ratio",
            f"The image is {width} x {height} pixels: aspect ratio above {MAX_ASPECT_RATIO}. Crop or pad it.",
        )


def _on_canvas(rgb: Image.Image, header: Header) -> Image.Image:
    """A GIF's frame on its canvas: what the frame does not cover is transparent, hence white."""
    if header.frame is None or header.frame == (0, 0, header.width, header.height):
        return rgb
    page = Image.new("RGB", rgb.size, WHITE)
    page.paste(rgb.crop(header.frame), header.frame[:2])
    return page
