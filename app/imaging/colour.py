"""Turns any decoded raster into 8-bit sRGB over white."""

from functools import lru_cache
from io import BytesIO

from PIL import Image, ImageChops, ImageCms, ImageOps

from app.imaging.formats import Format
from app.imaging.header import Header, unsupported

WHITE = (255, 255, 255)
_SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
# Two profiles that differ by rounding only: the transform would cost time and change nothing.
_ROUNDING = 2


def to_srgb(image: Image.Image, icc: bytes | None) -> Image.Image:
    """8-bit sRGB, with transparent parts over white. A profile that does not fit the raster is ignored.

    Takes modes 1, L, LA, P, PA, RGB, RGBA, RGBX, RGBa, La, CMYK, YCbCr. Gives `image` itself where it is
    right already.
    """
    colours, alpha = _split_alpha(image)
    rgb = _managed(colours, icc)
    if alpha is None or alpha.getextrema() == (255, 255):
        return rgb
    page = Image.new("RGB", rgb.size, WHITE)
    page.paste(rgb, mask=alpha)
    return page


def eight_bits(image: Image.Image, header: Header) -> Image.Image:
    """The raster with 8 bits per sample, and a PNG's transparent colour scaled likewise.

    Raises ImageError for samples of 32 bits, floats and Lab.
    """
    if image.mode.startswith("I;16"):
        grey = _grey16(image, _transparent(image))
        return ImageOps.invert(grey) if header.inverted else grey
    if image.mode in ("I", "F", "LAB", "HSV"):
        raise unsupported(header.format, f"samples of mode {image.mode} (32-bit, float or Lab)")
    if header.format is Format.BMP and image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0):
        return image.convert("RGB")  # the fourth byte is unused, as screen grabs write it
    key = image.info.get("transparency")
    if header.format is Format.PNG and key is not None and image.mode in ("L", "RGB"):
        image.info["transparency"] = _scaled(key, header.bits)
    return image


def _transparent(image: Image.Image) -> int | None:
    key = image.info.get("transparency")
    return key if isinstance(key, int) else None


def _scaled(key: int | tuple[int, ...], bits: int) -> int | tuple[int, ...]:
    """A sample of 1 to 16 bits as the decoder scales it to 8."""
    if isinstance(key, tuple):
        return tuple(value >> 8 if bits == 16 else value & 0xFF for value in key)
    return min(key, (1 << bits) - 1) * 255 // ((1 << bits) - 1)


def _grey16(image: Image.Image, key: int | None) -> Image.Image:
    """The high bytes of 16-bit grey; `key` is the value that is transparent, compared in all its bits."""
    raw = image.tobytes()
    high, low = (raw[0::2], raw[1::2]) if image.mode == "I;16B" else (raw[1::2], raw[0::2])
    grey = Image.frombytes("L", image.size, high)
    if key is None:
        return grey
    masks = [
        Image.frombytes("L", image.size, plane.translate(_all_but(byte)))
        for plane, byte in ((high, key >> 8 & 0xFF), (low, key & 0xFF))
    ]
    return Image.merge("LA", (grey, ImageChops.lighter(*masks)))


def _all_but(byte: int) -> bytes:
    return bytes(0 if value == byte else 255 for value in range(256))


def _split_alpha(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Colours as L, RGB or CMYK, and the alpha channel if there is one."""
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    elif image.mode in ("RGBa", "La"):
        image = image.convert(image.mode.upper())
    elif image.mode in ("YCbCr", "RGBX"):
        image = image.convert("RGB")
    if "transparency" in image.info and image.mode in ("L", "RGB"):
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    if image.mode in ("LA", "RGBA"):
        return image.convert(image.mode[:-1]), image.getchannel("A")
    return image, None


def _managed(colours: Image.Image, icc: bytes | None) -> Image.Image:
    transform = _transform(icc, colours.mode) if icc else None
    if transform is None:
        return colours if colours.mode == "RGB" else colours.convert("RGB")
    return transform.apply(colours)


@lru_cache(maxsize=64)
def _transform(icc: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """From a profile to sRGB; None where the profile is broken, of other colours, or sRGB itself."""
    try:
        profile = ImageCms.ImageCmsProfile(BytesIO(icc))
        transform = ImageCms.buildTransform(profile, _SRGB, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    return None if mode == "RGB" and _changes_nothing(transform) else transform


def _changes_nothing(transform: ImageCms.ImageCmsTransform) -> bool:
    """Whether a cube of 9 x 9 x 9 colours comes out as it went in."""
    levels = [min(255, level * 32) for level in range(9)]
    cube = bytes(value for r in levels for g in levels for b in levels for value in (r, g, b))
    before = Image.frombytes("RGB", (27, 27), cube)
    difference = ImageChops.difference(before, transform.apply(before))
    return max(high for _, high in _extrema(difference)) <= _ROUNDING


def _extrema(image: Image.Image) -> list[tuple[int, int]]:
    bands = [band.getextrema() for band in image.split()]
    return [(int(low), int(high)) for low, high in bands if isinstance(low, int) and isinstance(high, int)]
