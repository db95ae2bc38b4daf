"""Puts the names of local pictures back into an export, which has the ids that were sent in their place."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.exports.formats import csv_line, harmless
from app.results import as_line
from app.runs.inputs import parquet

Rewrite = Callable[[Path, Path, Sequence[str], Mapping[str, str]], None]


def restore(path: Path, columns: Sequence[str], texts: Mapping[str, str]) -> None:
    """Rewrite the export in place: in these columns each id becomes the text that the table has for it."""
    part = path.with_name(f".{path.name}.names")
    rewrite = {".csv": _csv, ".parquet": parquet().rewrite}.get(path.suffix.lower(), _lines)
    try:
        rewrite(path, part, columns, texts)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _csv(path: Path, to: Path, columns: Sequence[str], texts: Mapping[str, str]) -> None:
    safe = {id: harmless(text) for id, text in texts.items()}
    with path.open(newline="", encoding="utf-8") as old, to.open("w", newline="", encoding="utf-8") as new:
        rows = csv.reader(old)
        header = next(rows, [])
        shown = [at for at, name in enumerate(header) if name.removeprefix("\ufeff") in columns]
        new.write(csv_line(header))
        for row in rows:
            for at in shown:
                row[at] = safe.get(row[at], row[at])
            new.write(csv_line(row))


def _lines(path: Path, to: Path, columns: Sequence[str], texts: Mapping[str, str]) -> None:
    with path.open("rb") as old, to.open("wb") as new:
        for line in old:
            row = json.loads(line)
            for name in columns:
                if isinstance(row.get(name), str):
                    row[name] = texts.get(row[name], row[name])
            new.write(as_line(row))
