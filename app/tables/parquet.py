"""Parquet, row group by row group and few rows at a time: a row may be far larger than its file."""

from collections.abc import Iterator, Sequence
from io import RawIOBase
from itertools import accumulate
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.config import MIB
from app.tables.base import MAX_ROW_CHARS, MOST_COLUMNS, Cell, InputError, Row, RowProblem, refused, said
from app.tables.values import cell_of

# Of a page, the index of the file at its end, and whatever else is read at once.
MOST_READ = 256 * MIB
READ_BYTES = MIB
# Rows in memory at once, and what they should come to. More are hardly faster: 100,000 rows of five columns
# take 0.13 s by 512, 0.22 s by 16, 0.84 s by 4 and 3.1 s by 1.
MOST_ROWS, FEW_ROWS = 16, 4
BATCH_BYTES = 16 * MIB
# Of a row's cells together, images included.
MAX_ROW_BYTES = 64 * MIB


class Parquet:
    """A table whose columns have types. Raises InputError for a file that is none."""

    def __init__(self, file: BinaryIO | RawIOBase) -> None:
        try:
            # Read by pieces as the rows are needed; nothing of it is mapped or read ahead.
            self._file = pq.ParquetFile(file, buffer_size=READ_BYTES, pre_buffer=False)
            self._schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(error) from error
        if self._file.metadata.num_columns > MOST_COLUMNS:
            message = (
                f"The table has over {MOST_COLUMNS:,} columns, the fields of structs counted one by one."
            )
            raise refused("invalid_parquet", message)
        widths = [_leaves(field.type) for field in self._schema]
        self._starts = list(accumulate(widths, initial=0))

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
        number, names = first, [self._schema.names[at] for at in columns]
        for arrays, count in self._batches(group, columns):
            for at in range(count):
                if number > after:
                    yield _row(number, at, arrays, names)
                number += 1
            arrays.clear()  # or they would be held until the next ones are read

    def _batches(self, group: int, columns: Sequence[int]) -> Iterator[tuple[list[pa.Array], int]]:
        """The arrays of some rows, and how many those are. Columns go by their places: names may be alike."""
        read = sorted(set(columns))
        leaves = [leaf for at in read for leaf in range(self._starts[at], self._starts[at + 1])]
        places = [read.index(at) for at in columns]
        batches = self._file.reader.iter_batches(
            self._rows_at_once(group, leaves), row_groups=[group], column_indices=leaves, use_threads=False
        )
        try:
            for batch in batches:
                arrays, count = [batch.column(at) for at in places], batch.num_rows
                del batch
                yield arrays, count
        except (pa.ArrowException, OSError, KeyError) as error:
            raise _damaged(error) from error

    def _rows_at_once(self, group: int, leaves: Sequence[int]) -> int:
        """So few that they cannot come to much, as far as the file's own figures tell.

        No value is larger than its column is unpacked, but each row of a dictionary may have the largest.
        """
        metadata = self._file.metadata.row_group(group)
        unpacked = max(1, sum(metadata.column(leaf).total_uncompressed_size for leaf in leaves))
        by_average = BATCH_BYTES * metadata.num_rows // unpacked
        return max(1, min(MOST_ROWS, max(BATCH_BYTES // unpacked, min(FEW_ROWS, by_average))))


def _row(number: int, at: int, arrays: Sequence[pa.Array], names: Sequence[str]) -> Row:
    """A cell that cannot be read is empty, and a problem of the row for who asks about it."""
    cells, problem, held = list[Cell](), None, 0
    for name, array in zip(names, arrays, strict=True):
        cell = _cell(array, at, room=MAX_ROW_BYTES - held)
        if isinstance(cell, RowProblem):
            problem = problem or RowProblem(cell.code, cell.message, name)
            cells.append(None)
            continue
        held += len(cell or "")
        cells.append(cell)
    return Row(number, cells, problem)


def _cell(array: pa.Array, at: int, *, room: int) -> Cell | RowProblem:
    """Weighed before it is made: a text takes up to four times as much in Python."""
    size = _weight(array, at) if array.nbytes > MAX_ROW_CHARS else 0
    try:
        cell = cell_of(array[at]) if size <= 4 * MAX_ROW_CHARS else None
    except UnicodeDecodeError:
        return RowProblem("invalid_cell", "The text is not valid UTF-8.")
    if size > 4 * MAX_ROW_CHARS or len(cell or "") > MAX_ROW_CHARS:
        return RowProblem("row_too_long", f"The value is over {MAX_ROW_CHARS:,} characters or bytes.")
    if len(cell or "") > room:
        return RowProblem("row_too_long", f"The row is over {MAX_ROW_BYTES:,} characters or bytes.")
    return cell


def _weight(array: pa.Array, at: int) -> int:
    if isinstance(array, pa.DictionaryArray):
        return _weight(array.dictionary, array.indices[at].as_py()) if array[at].is_valid else 0
    return array.slice(at, 1).nbytes


def _leaves(kind: pa.DataType) -> int:
    """How many columns a type is in the file."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) or 1


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(kind.field(at).type) for at in range(kind.num_fields))
    return any(
        test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    )


def _damaged(error: Exception) -> InputError:
    return refused("invalid_parquet", f"The file is not Parquet, or is corrupt: {said(error)}.")
