"""A user's own table beside an export of it: how each row names its pictures, and why one was not sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.runs.inputs import Input, Kind, columns_of, rows_of
from app.runs.missing import why_missing
from app.runs.pictures import Found, places
from app.runs.references import may_be_local, names_file

Cells = Sequence[str | None]


@dataclass(frozen=True)
class Own:
    """`refused` says of pictures, by their texts, why the service took them not."""

    source: Input
    image_columns: Sequence[str]
    folder: Path
    found: Found
    refused: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """The image columns as an export names them."""
        there = columns_of(self.source)
        return [there[at].strip() for at in places(self.source, self.image_columns)]

    def rows(self) -> Iterator[Cells]:
        """The image cells of each row, in their order; none of a row that cannot be read."""
        for row in rows_of(self.source, places(self.source, self.image_columns)):
            yield [cell if isinstance(cell, str) else None for cell in row.cells]

    def reason(self, cells: Cells) -> str | None:
        """Why a picture of the row was not sent."""
        return next((why for cell in cells if cell and (why := self._why(cell)) is not None), None)

    def reasons(self, numbers: set[int]) -> dict[int, str]:
        """Of these rows, by number from 1."""
        if not numbers or not self.is_local:
            return {}
        rows = (
            (number, self.reason(cells)) for number, cells in enumerate(self.rows(), 1) if number in numbers
        )
        return {number: why for number, why in rows if why}

    @property
    def is_local(self) -> bool:
        """Whether the input names files here."""
        return self.source.kind not in (Kind.ZIP, Kind.PREFIX, Kind.JSONL) and bool(
            self.found.files or self.found.missing
        )

    def _why(self, cell: str) -> str | None:
        path = self.found.files.get(cell)
        if path is None:
            text = cell.strip()
            is_lost = may_be_local(text) or names_file(text)
            return why_missing(self.folder.resolve(), text) if is_lost else None
        if cell in self.refused:
            return f"{cell.strip()} was not taken: {self.refused[cell]}"
        return f"{cell.strip()} is empty" if not path.stat().st_size else None
