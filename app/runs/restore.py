"""Puts a user's own words back into an export: names of pictures for their ids, and why one was not sent."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.exports.formats import csv_line, harmless
from app.results import as_line
from app.runs.inputs import parquet
from app.runs.notebook import Sent
from app.runs.own import Cells, Own

Row = dict[str, Any]
Mend = Callable[[Row], Row]
NOT_AN_IMAGE = "bad_url: "  # how the service's error begins for a name of ours


class Mender:
    """Mends the rows of an export in their order. Without the table, every cell that is a picture's id."""

    def __init__(self, sent: Mapping[str, Sent], own: Own | None = None) -> None:
        self._sent = sent
        self._own = own
        self._columns = own.columns if own else []
        self._rows: Iterator[Cells] = own.rows() if own else iter(())

    def __call__(self, row: Row) -> Row:
        cells = next(self._rows, ())
        reason = self._own.reason(cells) if self._own else None
        return {name: self._mended(name, value, cells, reason) for name, value in row.items()}

    def _mended(self, name: str, value: Any, cells: Cells, reason: str | None) -> Any:
        if not isinstance(value, str):
            return value
        if reason and "_error" in name and value.startswith(NOT_AN_IMAGE):
            return NOT_AN_IMAGE + reason
        if value not in self._sent or (self._own and name not in self._columns):
            return value
        return self._spelling(self._sent[value], name, cells)

    def _spelling(self, sent: Sent, name: str, cells: Cells) -> str:
        """As this very row has it; another's, where the table was changed meanwhile."""
        own = cells[self._columns.index(name)] if self._own and cells else None
        if self._own and own is not None and str(self._own.found.files.get(own)) == sent.path:
            return own
        return sent.text


def restore(path: Path, mend: Mend) -> None:
    """Rewrite the export in place."""
    part = path.with_name(f".{path.name}.names")
    rewrite = {".csv": _csv, ".parquet": _parquet}.get(path.suffix.lower(), _lines)
    try:
        rewrite(path, part, mend)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _csv(path: Path, to: Path, mend: Mend) -> None:
    with path.open(newline="", encoding="utf-8") as old, to.open("w", newline="", encoding="utf-8") as new:
        rows = csv.reader(old)
        header = next(rows, [])
        new.write(csv_line(header))
        for row in rows:
            mended = mend(dict(zip(header, row, strict=False))).values()
            new.write(
                csv_line(
                    [cell if cell == was else harmless(cell) for cell, was in zip(mended, row, strict=False)]
                )
            )


def _parquet(path: Path, to: Path, mend: Mend) -> None:
    parquet().rewrite(path, to, None, mend)


def _lines(path: Path, to: Path, mend: Mend) -> None:
    with path.open("rb") as old, to.open("wb") as new:
        for line in old:
            new.write(as_line(mend(json.loads(line))))
