"""Makes the raster: the only place where decoders see bytes that a client chose."""

from collections.abc import Callable, Mapping
from io import BytesIO

from PIL import Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from app.errors import ImageError
from app.imaging.formats import Format
from app.imaging.header import Header, corrupt, truncated, unsupported

# Decoders by name, not Pillow's search through all that it knows: that may start Ghostscript.
_DECODERS: Mapping[Format, Callable[[BytesIO], ImageFile]] = {
    Format.JPEG: JpegImageFile,
    Format.PNG: PngImageFile,
    Format.GIF: GifImageFile,
    Format.WEBP: WebPImageFile,
    Format.BMP: BmpImageFile,
    Format.TIFF: TiffImageFile,
    Format.AVIF: AvifImageFile,
}


def decode(header: Header, small: int | None = None) -> Image.Image:
    """The raster as stored; raises ImageError for what the decoder finds wrong.

    A decoder that reads another size than the header's is stopped before it makes room for it. Where `small`
    pixels a side are enough, a JPEG is decoded at an eighth of its size or more.
    """
    try:
        image = _DECODERS[header.format](BytesIO(header.pixel_file()))
        if image.size != (header.width, header.height):
            raise corrupt(header.format, "its headers contradict each other")
        if small is not None:
            image.draft(None, (small, small))
        image.load()
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # they raise what they please: OSError, SyntaxError, struct.error, ...
        raise _translated(header, error) from error
    return image


def _translated(header: Header, error: Exception) -> ImageError:
    if header.format is Format.TIFF and isinstance(error, SyntaxError):
        return unsupported(header.format, "this layout of samples")
    if "truncated" in str(error):
        return truncated(header.format, "the picture's data ends early")
    return corrupt(header.format, "its data cannot be decoded")
