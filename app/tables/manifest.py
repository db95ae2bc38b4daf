"""A list of images: one reference a line, lines that begin with # and empty ones left out."""

from collections.abc import Iterable, Iterator, Sequence

from app.tables.base import Row, RowProblem
from app.tables.names import COLUMNS, last_part
from app.tables.text import TextFile


class Manifest:
    columns = COLUMNS
    texts = (0, 1)
    count = None

    def __init__(self, chunks: Iterable[bytes], *, encoding: str | None = None) -> None:
        self._text = TextFile(chunks, encoding)

    def rows(self, columns: Sequence[int], *, after: int = 0) -> Iterator[Row]:
        number = 0
        for line in self._text.lines():
            mended = self._text.mended([line.strip()])
            if mended is not None and (not mended[0] or mended[0].startswith("#")):
                continue
            number += 1
            if number <= after:
                continue
            if mended is None:
                yield Row(
                    number, (), RowProblem("invalid_encoding", "The line is not valid UTF-8.", COLUMNS[0])
                )
            else:
                cells = (mended[0], last_part(mended[0]))
                yield Row(number, [cells[at] for at in columns])
