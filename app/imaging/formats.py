"""Tells by its first bytes what a file is: a format that we read, or a name for the refusal."""

from dataclasses import dataclass
from enum import StrEnum

from app.errors import ImageError

ACCEPTED = "JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF"


class Format(StrEnum):
    """The formats that are read; everything else is refused before any decoder sees it."""

    JPEG = "JPEG"
    PNG = "PNG"
    WEBP = "WebP"
    GIF = "GIF"
    BMP = "BMP"
    TIFF = "TIFF"
    AVIF = "AVIF"

    @property
    def content_type(self) -> str:
        return f"image/{self.value.lower()}"


@dataclass(frozen=True)
class _Magic:
    """`prefix` at `offset` means a file of kind `name`."""

    prefix: bytes
    name: str
    offset: int = 0


_READ = (
    _Magic(b"\xff\xd8\xff", Format.JPEG),
    _Magic(b"\x89PNG\r\n\x1a\n", Format.PNG),
    _Magic(b"WEBP", Format.WEBP, 8),
    _Magic(b"GIF87a", Format.GIF),
    _Magic(b"GIF89a", Format.GIF),
    _Magic(b"BM", Format.BMP),
    _Magic(b"II*\0", Format.TIFF),
    _Magic(b"MM\0*", Format.TIFF),
)

# Before the ones above where a prefix is shared: a Canon raw file starts as a TIFF does.
_REFUSED = (
    _Magic(b"CR\x02", "camera raw (CR2)", 8),
    _Magic(b"%PDF", "PDF"),
    _Magic(b"%!PS", "PostScript (EPS)"),
    _Magic(b"\xc5\xd0\xd3\xc6", "PostScript (EPS)"),
    _Magic(b"8BPS", "Photoshop (PSD)"),
    _Magic(b"II+\0", "BigTIFF"),
    _Magic(b"MM\0+", "BigTIFF"),
    _Magic(b"II\xbc\x01", "JPEG XR"),
    _Magic(b"\xff\x0a", "JPEG XL"),
    _Magic(b"\0\0\0\x0cJXL ", "JPEG XL"),
    _Magic(b"\0\0\0\x0cjP  ", "JPEG 2000"),
    _Magic(b"\xff\x4f\xff\x51", "JPEG 2000"),
    _Magic(b"\0\0\x01\0", "Windows icon (ICO)"),
    _Magic(b"\0\0\x02\0", "Windows cursor (CUR) or Targa (TGA)"),
    _Magic(b"icns", "Apple icon (ICNS)"),
    _Magic(b"DDS ", "DDS texture"),
    _Magic(b"qoif", "QOI"),
    _Magic(b"\x76\x2f\x31\x01", "OpenEXR"),
    _Magic(b"#?RADIANCE", "Radiance HDR"),
    _Magic(b"SIMPLE  =", "FITS"),
    _Magic(b"DICM", "DICOM", 128),
    _Magic(b"\x1aE\xdf\xa3", "Matroska or WebM video"),
    _Magic(b"AVI ", "AVI video", 8),
    _Magic(b"WAVE", "WAV audio", 8),
    _Magic(b"FLV\x01", "Flash video"),
    _Magic(b"ID3", "MP3 audio"),
    _Magic(b"OggS", "Ogg"),
    _Magic(b"PK\x03\x04", "ZIP archive"),
    _Magic(b"\x1f\x8b", "gzip archive"),
    _Magic(b"Rar!", "RAR archive"),
    _Magic(b"7z\xbc\xaf\x27\x1c", "7z archive"),
    _Magic(b"\x28\xb5\x2f\xfd", "zstd archive"),
    _Magic(b"\xd7\xcd\xc6\x9a", "Windows metafile (WMF)"),
    _Magic(b"\0\0\0\0ftyp", "MP4 video"),
)

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIF_BRANDS = frozenset(
    {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1"}
)
_NETPBM = frozenset(b"P%d" % kind for kind in range(1, 8))


def sniff(data: bytes) -> Format:
    """The format of `data` by its first bytes; file names and content types are never asked.

    Raises ImageError: `empty_body`, `unsupported_format` (a known kind of file that is not read) or
    `not_an_image`.
    """
    if not data:
        raise ImageError("empty_body", "The image is empty (0 bytes). Check the upload or the link.")
    head = data[:512]
    if head[4:8] == b"ftyp":
        return _iso_media(head)
    for magic in _REFUSED:
        if head.startswith(magic.prefix, magic.offset):
            raise _unsupported(magic.name)
    for magic in _READ:
        if head.startswith(magic.prefix, magic.offset):
            return Format(magic.name)
    raise _text_or_unknown(head)


def _iso_media(head: bytes) -> Format:
    """AVIF, HEIC and MP4 share one container and differ by their brands."""
    size = min(int.from_bytes(head[:4], "big"), len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))}
    if brands & _AVIF_BRANDS:
        return Format.AVIF
    if brands & _HEIF_BRANDS:
        raise _unsupported("HEIC (HEIF)")
    raise _unsupported("MP4 or QuickTime video")


def _text_or_unknown(head: bytes) -> ImageError:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if b"<svg" in text:
        return _unsupported("SVG")
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<title")):
        return _not_an_image("an HTML page. The link may lead to a web page, a login or a robot check")
    if text.startswith(b"<"):
        return _not_an_image("an XML or HTML text, often a server's error message")
    if text.startswith((b"{", b"[")):
        return _not_an_image("a JSON text, often a server's error message")
    if text.startswith(b"version https://git-lfs"):
        return _not_an_image("a Git LFS pointer. Upload the file that it points to")
    if head[:2] in _NETPBM and head[2:3].isspace():
        return _unsupported("Netpbm")
    if (
        head.isascii()
        and head.decode("ascii").replace("\n", "").replace("\r", "").replace("\t", "").isprintable()
    ):
        return _not_an_image("plain text")
    return _not_an_image("of an unrecognized format")


def _unsupported(name: str) -> ImageError:
    return ImageError("unsupported_format", f"This file is {name}, which is unsupported. Send {ACCEPTED}.")


def _not_an_image(what: str) -> ImageError:
    return ImageError("not_an_image", f"This file is not an image: it is {what}. Send {ACCEPTED}.")
