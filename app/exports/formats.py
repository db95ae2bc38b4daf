"""Rows as CSV and as NDJSON, in blocks. Pure."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from app.checks import Json
from app.exports.columns import Cells, Column
from app.results import as_line

BLOCK_BYTES = 128 * 1024

# What a spreadsheet takes for the beginning of a formula, also in its wide form; spaces before do not matter.
_FORMULA = re.compile(r"[\s\ufeff\u200b]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
# The same behind a semicolon or a tab, where another list separator than the comma parts a cell: of a line's
# first field quotes keep that, of the others they count for nothing then.
_FORMULA_WITHIN = re.compile(r'([;\t][\s"]*)(?=[=@\uff1d\uff20]|[+\-\uff0b\uff0d](?![\d\s.,]))')
_QUOTED = re.compile(r'[",;\t\r\n]')
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?%?")


def write_csv(columns: Sequence[Column], rows: Iterable[Cells]) -> Iterator[bytes]:
    """UTF-8, commas, CRLF (RFC 4180). No cell is a formula to a spreadsheet, whatever its delimiter."""
    text = io.StringIO(newline="")
    text.write(csv_line([harmless(column.name) for column in columns]))
    for row in rows:
        text.write(csv_line([csv_cell(value) for value in row]))
        if text.tell() >= BLOCK_BYTES:
            yield _taken(text)
    yield _taken(text)


def write_ndjson(columns: Sequence[Column], rows: Iterable[Cells]) -> Iterator[bytes]:
    """An object per row, in UTF-8."""
    names = [column.name for column in columns]
    return in_blocks(as_line(dict(zip(names, row, strict=True))) for row in rows)


def in_blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def csv_cell(value: Json) -> str:
    """Empty for null; what is no text as JSON has it."""
    if value is None:
        return ""
    return harmless(value) if isinstance(value, str) else as_text(value)


def csv_line(cells: Sequence[str]) -> str:
    """Fields that hold a delimiter of any program are quoted."""
    fields = [_quoted(cell) if _QUOTED.search(cell) else cell for cell in cells]
    return (",".join(fields) if fields != [""] else '""') + "\r\n"  # an empty line would be no row


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def harmless(text: str) -> str:
    """With an apostrophe before what a spreadsheet would run; numbers stay numbers."""
    text = _FORMULA_WITHIN.sub(r"\1'", text) if ";" in text or "\t" in text else text
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _taken(text: io.StringIO) -> bytes:
    block = text.getvalue().encode(errors="replace")
    text.seek(0)
    text.truncate()
    return block
