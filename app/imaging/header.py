"""What a picture's header says, and the errors that every reader of headers raises."""

from dataclasses import dataclass

from app.errors import ImageError
from app.imaging.formats import Format

# A colour profile is 0.5 to 3 KB for screens and up to 2 MB for printers; a larger one is ignored.
MAX_ICC_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Header:
    """A header as read, before any raster exists.

    `parts`, put together, are a file of the same format that holds the first picture's pixels and nothing
    else: what decoders make of comments, previews, later frames and broken metadata never happens.
    """

    format: Format
    width: int  # as stored, before `orientation` is applied
    height: int
    parts: tuple[bytes | memoryview, ...]
    orientation: int = 1  # EXIF's numbers
    icc: bytes | None = None
    bits: int = 8  # per sample of a PNG
    inverted: bool = False  # white is zero, and the decoder leaves it so (TIFF)
    frame: tuple[int, int, int, int] | None = None  # left, top, right, bottom of a GIF's first frame

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height as shown: orientations 5 to 8 lie on their side."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)

    def pixel_file(self) -> bytes:
        """The bytes for the decoder; no copy where the whole file is kept."""
        only = self.parts[0]
        return only if len(self.parts) == 1 and isinstance(only, bytes) else b"".join(self.parts)


def corrupt(format_: Format, what: str) -> ImageError:
    return ImageError(
        "corrupt_image", f"The {format_} image is corrupt or truncated: {what}. Send the whole file again."
    )


def truncated(format_: Format, what: str) -> ImageError:
    """Of files that are known to end before their picture does."""
    return ImageError("truncated", f"The {format_} image is truncated: {what}. Send the whole file again.")


def unsupported(format_: Format, what: str) -> ImageError:
    return ImageError(
        "unsupported_format", f"{format_} with {what} is unsupported. Convert it to an 8-bit PNG or JPEG."
    )


def too_complex(format_: Format, what: str) -> ImageError:
    return ImageError(
        "too_complex", f"The {format_} image has {what}. Save it again with an ordinary program."
    )
