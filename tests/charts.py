"""Pictures for tests, made here: a chart whose four corners tell how it was turned and coloured."""

import struct
import zlib
from collections.abc import Sequence
from io import BytesIO

from PIL import Image, ImageCms

SIZE = (96, 64)
# Red top left, green top right, blue bottom left, yellow bottom right.
CORNERS = {(24, 16): (255, 0, 0), (72, 16): (0, 255, 0), (24, 48): (0, 0, 255), (72, 48): (255, 255, 0)}
WHITE = (255, 255, 255)

_STORED = {  # how an upright picture is stored so that EXIF's number turns it upright again
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def chart() -> Image.Image:
    image = Image.new("RGB", SIZE)
    for (x, y), colour in CORNERS.items():
        image.paste(colour, (x - 24, y - 16, x + 24, y + 16))
    return image


def noise(width: int, height: int) -> Image.Image:
    """A picture that hardly compresses; the same every time."""
    state, values = 1, bytearray()
    for _ in range(width * height * 3):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        values.append(state >> 16 & 0xFF)
    return Image.frombytes("RGB", (width, height), bytes(values))


def turned(orientation: int) -> Image.Image:
    """The chart as it is stored under an EXIF orientation."""
    return chart().transpose(_STORED[orientation]) if orientation > 1 else chart()


def encode(image: Image.Image, format_: str, **options: object) -> bytes:
    out = BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def difference(image: Image.Image) -> int:
    """How far the middle of a quadrant is from the chart's colour, at most, per channel."""
    assert image.mode == "RGB"
    assert image.size == SIZE
    return max(
        abs(is_ - want)
        for point, colour in CORNERS.items()
        for is_, want in zip(pixel(image, point), colour, strict=True)
    )


def pixel(image: Image.Image, point: tuple[int, int]) -> tuple[int, ...]:
    value = image.getpixel(point)
    assert isinstance(value, tuple)
    return value


def exif(orientation: int, order: str = "<") -> bytes:
    """An EXIF block that holds an orientation."""
    head = b"II*\0" if order == "<" else b"MM\0*"
    return b"Exif\0\0" + head + struct.pack(f"{order}IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(
    size: tuple[int, int], bits: int, colour: int, rows: Sequence[bytes], before_pixels: Sequence[bytes] = ()
) -> bytes:
    """A PNG from packed rows; `colour` is PNG's number: 0 grey, 2 RGB, 3 palette, 4 grey+alpha, 6 RGBA."""
    header = struct.pack(">IIBBBBB", *size, bits, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + b"".join(before_pixels)
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def chart_png(*before_pixels: bytes) -> bytes:
    image = chart()
    row = SIZE[0] * 3
    raw = image.tobytes()
    rows = [raw[at : at + row] for at in range(0, len(raw), row)]
    return png(SIZE, 8, 2, rows, before_pixels)


def tiff(
    order: str, pixels: bytes, *, bits: int = 8, photometric: int = 1, tags: Sequence[tuple[int, int]] = ()
) -> bytes:
    """A TIFF of one row of grey samples, with more SHORT tags where wanted; `order` as in struct."""
    width = len(pixels) * 8 // bits
    given = {
        256: width,
        257: 1,
        258: bits,
        259: 1,
        262: photometric,
        273: 8,
        277: 1,
        279: len(pixels),
        **dict(tags),
    }
    entries = b"".join(struct.pack(f"{order}HHIHH", code, 3, 1, given[code], 0) for code in sorted(given))
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8 + len(pixels))
    return head + pixels + struct.pack(f"{order}H", len(given)) + entries + bytes(4)


def jpeg_with_segments(data: bytes, *segments: tuple[int, bytes]) -> bytes:
    """A JPEG with more segments behind its start marker."""
    packed = (struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in segments)
    return data[:2] + b"".join(packed) + data[2:]


def swapped_profile() -> bytes:
    """sRGB with the primaries of red and blue exchanged: a managed reader exchanges the channels."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile = bytearray(profile)
    red, blue = profile.index(b"rXYZ", 128), profile.index(b"bXYZ", 128)
    profile[red + 4 : red + 12], profile[blue + 4 : blue + 12] = (
        bytes(profile[blue + 4 : blue + 12]),
        bytes(profile[red + 4 : red + 12]),
    )
    return bytes(profile)


def srgb_profile() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
