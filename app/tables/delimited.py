"""CSV and TSV, as spreadsheets and programs write them: every value is text."""

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import StringIO

from app.tables.base import MAX_ROW_CHARS, MOST_COLUMNS, Row, RowProblem, refused, said
from app.tables.columns import count_found
from app.tables.text import TextFile

DELIMITERS = (",", "\t", ";", "|")
_SEP = "sep="  # a first line of spreadsheets that names the delimiter

csv.field_size_limit(MAX_ROW_CHARS)


class Delimited:
    """A table of text. `wanted` are columns that help to tell the delimiter where none is given."""

    count = None

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        wanted: Collection[str] = (),
    ) -> None:
        self._text = TextFile(chunks, encoding)
        self._lines = _Lines(self._text.lines())
        declared = _declared(self._text.sample)
        if declared:
            next(self._lines)
        delimiter = delimiter or declared or guess_delimiter(self._text.sample, wanted)
        self._rows = self._records(csv.reader(self._lines, delimiter=delimiter))
        self._header = self._read_header()

    @property
    def columns(self) -> Sequence[str]:
        return self._header

    @property
    def texts(self) -> Sequence[int]:
        return range(len(self._header))

    def rows(self, columns: Sequence[int], *, after: int = 0) -> Iterator[Row]:
        number, width = 0, len(self._header)
        for record in self._rows:
            cells = self._text.mended(record)
            number += 1
            if number <= after:
                continue
            if cells is None:
                yield Row(number, (), self._bad_bytes())
            elif len(cells) > width and any(cells[width:]):
                yield Row(number, [cells[at] for at in columns], _too_wide(len(cells), width))
            else:
                yield Row(number, [cells[at] if at < len(cells) else "" for at in columns])

    def _records(self, reader: Iterator[list[str]]) -> Iterator[list[str]]:
        """The rows that are not empty, the header among them."""
        try:
            for record in reader:
                if self._lines.ended_within:
                    raise refused("invalid_csv", UNCLOSED)
                self._lines.held = 0
                if any(cell and not cell.isspace() for cell in record):
                    yield record
        except csv.Error as error:
            raise refused("invalid_csv", f"The file is not CSV: {said(error)}.") from error

    def _read_header(self) -> Sequence[str]:
        record = next(self._rows, None)
        if record is None:
            raise refused("empty_file", "The table is empty: it has no header and no rows.")
        header = self._text.mended(record)
        if header is None:
            raise refused("invalid_encoding", f"The header is not valid {self._text.encoding.upper()}.")
        if len(header) > MOST_COLUMNS:
            raise refused("invalid_csv", f"The table has over {MOST_COLUMNS:,} columns.")
        return header

    def _bad_bytes(self) -> RowProblem:
        encoding = self._text.encoding.upper().removesuffix("-SIG")
        message = (
            f"The row is not valid {encoding}: save the file in the encoding UTF-8, or name its encoding."
        )
        return RowProblem("invalid_encoding", message)


UNCLOSED = (
    "The file ends inside a quoted cell: a cell that begins with a quote must end with one, "
    'and a quote inside it is written twice ("").'
)


class _Lines:
    """Lines on their way into the parser: tells where a row grows too long, or the file ends within one."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.held = 0
        self.ended_within = False

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.ended_within = self.held > 0
            raise StopIteration
        self.held += len(line)
        if self.held > MAX_ROW_CHARS:
            raise refused("row_too_long", f"A row has over {MAX_ROW_CHARS:,} characters. {UNCLOSED}")
        return line


def guess_delimiter(sample: str, wanted: Collection[str]) -> str:
    """The one under which the header has the most of the wanted columns, then the most columns."""

    def score(delimiter: str) -> tuple[int, int]:
        lines = StringIO(sample, newline="")
        header = next((row for row in csv.reader(lines, delimiter=delimiter) if any(row)), [])
        return count_found(wanted, header), len(header)

    return max(DELIMITERS, key=score)


def _declared(sample: str) -> str | None:
    line = next(StringIO(sample[:16]), "").rstrip("\r\n")
    return line[-1] if line.lower().startswith(_SEP) and len(line) == len(_SEP) + 1 else None


def _too_wide(cells: int, width: int) -> RowProblem:
    message = f"The row has {cells} cells, the header {width}: quote a cell that holds the delimiter."
    return RowProblem("wrong_cell_count", message)
