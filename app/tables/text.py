"""Text files of any usual encoding as lines of bounded length."""

import codecs
import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain

from app.config import MIB
from app.tables.base import MAX_ROW_CHARS, refused

SAMPLE_BYTES = MIB
FALLBACK = "cp1252"  # what spreadsheets on Windows write where they do not write UTF-8

_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class TextFile:
    """The lines of chunks of bytes, ended by \\n, \\r or both, and the encoding that they turned out to have.

    Bytes that are none of the encoding's become halves of surrogate pairs, which `mended` finds.
    """

    def __init__(self, chunks: Iterable[bytes], encoding: str | None) -> None:
        chunks = iter(chunks)
        head, rest = _sample(chunks)
        if head.startswith(_UTF32):  # the first of them begins as UTF-16 does
            raise refused("invalid_encoding", "The file is UTF-32: save it in the encoding UTF-8.")
        self._guessed = None if encoding else guess_encoding(head)
        # ASCII up to here: the first row that is not will decide.
        self._undecided = encoding is None and self._guessed is None
        self._fallback = False
        self.encoding = _with_bom(head, encoding) or self._guessed or "utf-8"
        self.sample = head.decode(self.encoding, "replace")
        raw = io.BufferedReader(_Chunks(chain([head, rest], chunks)), buffer_size=256 * 1024)
        self._text = io.TextIOWrapper(raw, self.encoding, errors="surrogateescape", newline="")

    def lines(self) -> Generator[str]:
        """Each with its end. Raises InputError for one that is too long, and for broken UTF-16."""
        try:
            while line := self._text.readline(MAX_ROW_CHARS + 1):
                if len(line) > MAX_ROW_CHARS:
                    raise refused(
                        "line_too_long", f"The file has a line of over {MAX_ROW_CHARS:,} characters."
                    )
                yield line
        except UnicodeError as error:
            message = f"The file is not valid {self.encoding.upper()}: save it in the encoding UTF-8."
            raise refused("invalid_encoding", message) from error

    def mended(self, cells: Sequence[str]) -> Sequence[str] | None:
        """A row's cells as text; None where they hold bytes that are no characters of the encoding."""
        joined = "".join(cells)
        if joined.isascii():
            return cells
        is_clean = _is_clean(joined)
        if self._undecided:
            self._undecided, self._fallback = False, not is_clean
        if self._fallback:
            cells = [
                cell.encode("utf-8", "surrogateescape").decode(FALLBACK, "surrogateescape") for cell in cells
            ]
            is_clean = _is_clean("".join(cells))
        return cells if is_clean else None


def guess_encoding(sample: bytes) -> str | None:
    """By the byte order mark, else by whether the bytes above ASCII are rather UTF-8; None for ASCII."""
    for bom, encoding in _BOMS:
        if sample.startswith(bom):
            return encoding
    if sample.isascii():
        return None
    # Final: what is cut off at the end of the sample counts for neither.
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(sample)
    above = [character for character in text if not character.isascii()]
    broken = sum("\udc80" <= character <= "\udcff" for character in above)
    return FALLBACK if 2 * broken > len(above) else "utf-8"


def _with_bom(head: bytes, encoding: str | None) -> str | None:
    """UTF-8 without its byte order mark, whoever says that it has none."""
    return "utf-8-sig" if encoding == "utf-8" and head.startswith(codecs.BOM_UTF8) else encoding


def _is_clean(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sample(chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """The first bytes, and those beyond that came along: a sample is the same however the chunks fall."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if len(held) >= SAMPLE_BYTES:
            break
    return bytes(held[:SAMPLE_BYTES]), bytes(held[SAMPLE_BYTES:])


class _Chunks(io.RawIOBase):
    """Chunks as a file that is read from its start to its end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
