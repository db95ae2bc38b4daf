"""Parquet on its user's side: rows to look at, and image columns with other values in them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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


def rewrite(path: Path, to: Path, columns: Sequence[str], instead: Mapping[str, str]) -> None:
    """Copy a file, with other texts in place of some in these columns."""
    file = _open(path)
    schema = file.schema_arrow
    for name in columns:
        at = schema.get_field_index(name)
        schema = schema.set(at, schema.field(at).with_type(pa.string()))
    with pq.ParquetWriter(to, schema) as writer:
        for batch in file.iter_batches(batch_size=GROUP_ROWS):
            writer.write_batch(_replaced(batch, schema, columns, instead))


def _replaced(
    batch: pa.RecordBatch, schema: pa.Schema, columns: Sequence[str], instead: Mapping[str, str]
) -> pa.RecordBatch:
    arrays = list(batch.columns)
    for name in columns:
        at = schema.get_field_index(name)
        texts = [None if text is None else instead.get(text, text) for text in arrays[at].to_pylist()]
        arrays[at] = pa.array(texts, pa.string())
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
