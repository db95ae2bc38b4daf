"""Parquet on its user's side: rows to look at, and image columns with other values in them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.runs.base import WrongRun
from app.tables.base import Cell, Row

GROUP_ROWS = 1_000


def columns_of(path: Path) -> Sequence[str]:
    return _open(path).schema_arrow.names


def rows_of(path: Path, columns: Sequence[int]) -> Iterator[Row]:
    file = _open(path)
    names = [file.schema_arrow.names[at] for at in columns]
    number = 0
    for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=names):
        values = [batch.column(name).to_pylist() for name in names]
        for cells in zip(*values, strict=True):
            number += 1
            yield Row(number, [_cell(cell) for cell in cells])


def rewrite(
    path: Path,
    to: Path,
    columns: Sequence[str] | None,
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Copy a file with each row's values in these columns changed, which are text then; None: all texts."""
    file = _open(path)
    schema = file.schema_arrow
    chosen = [one.name for one in schema if pa.types.is_string(one.type)] if columns is None else columns
    for name in chosen:
        at = schema.get_field_index(name)
        schema = schema.set(at, schema.field(at).with_type(pa.string()))
    with pq.ParquetWriter(to, schema) as writer:
        for batch in file.iter_batches(batch_size=GROUP_ROWS):
            writer.write_batch(_changed(batch, schema, chosen, change))


def _changed(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    columns: Sequence[str],
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> pa.RecordBatch:
    rows = [change(row) for row in batch.select(list(columns)).to_pylist()]
    arrays = list(batch.columns)
    for name in columns:
        arrays[schema.get_field_index(name)] = pa.array([row[name] for row in rows], pa.string())
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise WrongRun(f"{path}: it cannot be read as Parquet: {error}") from error


def _cell(value: object) -> Cell:
    """Images are texts, bytes or, as Hugging Face writes them, both; other values are looked at as text."""
    if isinstance(value, dict) and "bytes" in value:
        value = value["bytes"] or value.get("path")
    return value if value is None or isinstance(value, str | bytes) else str(value)
