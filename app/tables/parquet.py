"""Parquet, row group by row group: numbers and dates become text, images may lie in the cells as bytes."""

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from io import RawIOBase
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.checks import Json
from app.config import MIB
from app.tables.base import MAX_ROW_CHARS, Cell, InputError, Row, RowProblem, refused

# Of a page, the index of the file at its end, and whatever else is read at once.
MOST_READ = 256 * MIB
READ_BYTES = MIB
# Rows in memory at once; few of those that hold images.
ROWS, IMAGE_ROWS = 512, 8


class Parquet:
    """A table whose columns have types. Raises InputError for a file that is none."""

    def __init__(self, file: BinaryIO | RawIOBase) -> None:
        try:
            # Read by pieces as the rows are needed; nothing of it is mapped or read ahead.
            self._file = pq.ParquetFile(file, buffer_size=READ_BYTES, pre_buffer=False)
            self._schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(error) from error

    @property
    def columns(self) -> Sequence[str]:
        return self._schema.names

    @property
    def texts(self) -> Sequence[int]:
        return [at for at, field in enumerate(self._schema) if not _holds_bytes(field.type)]

    @property
    def count(self) -> int:
        return self._file.metadata.num_rows

    def rows(self, columns: Sequence[int], *, after: int = 0) -> Iterator[Row]:
        for at, group in self._groups(after):
            yield from self._rows_of(group, columns, first=at + 1, after=after)

    def _groups(self, after: int) -> Iterator[tuple[int, int]]:
        """The row groups that hold rows behind number `after`, and how many rows come before each."""
        before = 0
        for group in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            if before + count > after:
                yield before, group
            before += count

    def _rows_of(self, group: int, columns: Sequence[int], *, first: int, after: int) -> Iterator[Row]:
        number = first
        for batch in self._batches(group, columns):
            arrays = [batch.column(at) for at in range(len(columns))]
            for at in range(batch.num_rows):
                if number > after:
                    yield _row(number, [array[at] for array in arrays], self._names(columns))
                number += 1

    def _batches(self, group: int, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        names = self._names(columns)
        has_bytes = any(_holds_bytes(self._schema.field(at).type) for at in columns)
        batches = self._file.iter_batches(
            IMAGE_ROWS if has_bytes else ROWS, row_groups=[group], columns=names, use_threads=False
        )
        try:
            for batch in batches:
                yield batch.select(names)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise _damaged(error) from error

    def _names(self, columns: Sequence[int]) -> list[str]:
        return [self._schema.names[at] for at in columns]


def as_cell(value: Json) -> Cell:
    """A value as the text that a person would write, or the bytes of an image (at Hugging Face: a struct)."""
    match value:
        case None | str() | bytes():
            return value
        case bool():
            return "true" if value else "false"
        case float():  # whole numbers beside nulls are often kept as such
            return repr(value).removesuffix(".0")
        case datetime() | date() | time():
            return value.isoformat()
        case {"bytes": bytes() as data}:
            return data
        case {"path": str() as path}:
            return path
        case {"bytes": None}:
            return None
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, default=_shown)
        case _:
            return str(value)


def _row(number: int, values: Sequence[pa.Scalar], names: Sequence[str]) -> Row:
    cells: list[Cell] = []
    for name, value in zip(names, values, strict=True):
        try:
            cell = as_cell(value.as_py())
        except (ValueError, OverflowError, pa.ArrowException) as error:
            return Row(number, (), RowProblem("invalid_cell", f"The value cannot be read: {error}.", name))
        if cell is not None and len(cell) > MAX_ROW_CHARS:
            message = f"The value is over {MAX_ROW_CHARS:,} characters or bytes."
            return Row(number, (), RowProblem("row_too_long", message, name))
        cells.append(cell)
    return Row(number, cells)


def _shown(value: Json) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(as_cell(value))


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(kind.field(at).type) for at in range(kind.num_fields))
    return any(
        test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    )


def _damaged(error: Exception) -> InputError:
    reason = str(error).partition("\n")[0].rstrip(".")
    return refused("invalid_parquet", f"The file is not Parquet, or is corrupt: {reason}.")
