"""Rows as Parquet, a row group at a time."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from app.checks import Json
from app.config import MIB
from app.exports.columns import Cells, Column, Kind
from app.exports.formats import as_text

# A row group is held until it is full: large ones are read faster, small ones need less memory here.
GROUP_ROWS, GROUP_CHARS = 10_000, 4 * MIB

_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.JSON: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
}


class _Blocks(io.RawIOBase):
    """A file that is only written to, and taken away block by block."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._taken = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._taken + len(self._block)

    def write(self, data: bytes | memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._block += data
        return len(data)

    def take(self) -> bytes:
        block = bytes(self._block)
        self._taken += len(block)
        self._block.clear()
        return block


def write_parquet(columns: Sequence[Column], rows: Iterable[Cells]) -> Iterator[bytes]:
    schema = pa.schema([(column.name, _TYPES[column.kind]) for column in columns])
    file = _Blocks()
    writer = pq.ParquetWriter(file, schema, compression="zstd")
    try:
        for group in _groups(rows):
            writer.write_batch(_record_batch(schema, columns, group), row_group_size=GROUP_ROWS)
            yield file.take()
    except BaseException:
        with suppress(pa.ArrowException, OSError):
            writer.close()
        raise
    writer.close()
    yield file.take()


def _groups(rows: Iterable[Cells]) -> Iterator[list[Cells]]:
    group, held = list[Cells](), 0
    for row in rows:
        group.append(row)
        held += sum(len(value) for value in row if isinstance(value, str))
        if len(group) == GROUP_ROWS or held >= GROUP_CHARS:
            yield group
            group, held = [], 0
    if group:
        yield group


def _record_batch(schema: pa.Schema, columns: Sequence[Column], rows: Sequence[Cells]) -> pa.RecordBatch:
    arrays = [
        pa.array([_cell(column.kind, row[at]) for row in rows], schema.field(at).type)
        for at, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cell(kind: Kind, value: Json) -> Json:
    if value is None or kind not in (Kind.TEXT, Kind.JSON):
        return value
    return as_text(value).encode(errors="replace").decode()
