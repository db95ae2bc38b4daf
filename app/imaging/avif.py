"""Reads AVIF headers through the AVIF library, which parses the boxes without decoding."""

from io import BytesIO

from PIL.AvifImagePlugin import AvifImageFile

from app.imaging.formats import Format
from app.imaging.header import MAX_ICC_BYTES, Header, corrupt
from app.imaging.tags import exif_orientation


def read_avif(data: bytes) -> Header:
    """The header of the first picture; rotation boxes arrive as an EXIF orientation. Raises ImageError."""
    try:
        with AvifImageFile(BytesIO(data)) as image:
            width, height = image.size
            info = image.info
    except MemoryError:
        raise
    except Exception as error:  # the library's own errors have no common class
        raise corrupt(Format.AVIF, "its header cannot be read") from error
    icc = info.get("icc_profile", b"")
    return Header(
        format=Format.AVIF,
        width=width,
        height=height,
        parts=(data,),
        orientation=exif_orientation(info.get("exif", b"")),
        icc=icc if 0 < len(icc) <= MAX_ICC_BYTES else None,
    )
