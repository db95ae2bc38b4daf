"""Opens a stored table by its format, and makes entries of its rows."""

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from io import BufferedReader

from app.blocks import Entry
from app.config import MIB
from app.objects import ObjectStore
from app.tables import archive
from app.tables.archive import ZippedImages
from app.tables.base import Row, TableReader
from app.tables.delimited import Delimited
from app.tables.formats import format_of
from app.tables.manifest import Manifest
from app.tables.questions import RowReader
from app.tables.ranged import RangedFile
from app.tables.spec import TableSpec
from app.tables.templates import parse_template


@contextmanager
def open_table(
    objects: ObjectStore, key: str, filename: str, spec: TableSpec, *, image_max_bytes: int
) -> Iterator[TableReader]:
    """Raises InputError where the file is no such table, and what the object store raises."""
    kind = format_of(filename, spec.format)
    if kind == "parquet":
        yield _open_parquet(objects, key)
    elif kind == "zip":
        file = RangedFile(objects, key, most=archive.MOST_READ)
        yield ZippedImages(BufferedReader(file, MIB), size=file.size, image_max_bytes=image_max_bytes)
    else:
        with closing(objects.open(key)) as chunks:
            if kind == "txt":
                yield Manifest(chunks, encoding=spec.encoding)
                return
            delimiter = spec.delimiter or ("\t" if kind == "tsv" else None)
            yield Delimited(chunks, delimiter=delimiter, encoding=spec.encoding, wanted=named_columns(spec))


def _open_parquet(objects: ObjectStore, key: str) -> TableReader:
    """Imported by who reads such a file: pyarrow takes 30 MiB of every process that has it."""
    from app.tables import parquet

    return parquet.Parquet(RangedFile(objects, key, most=parquet.MOST_READ))


def named_columns(spec: TableSpec) -> Collection[str]:
    """Every column that a checked spec names."""
    templates = [*(question.ask for question in spec.questions), *([spec.system] if spec.system else [])]
    of_templates = {name for text in templates for name in parse_template("", text).columns}
    return of_templates | set(spec.image_columns) | ({spec.id_column} if spec.id_column else set())


def row_entries(reader: TableReader, rows: RowReader, *, after: int) -> Iterator[Entry]:
    """The rows behind number `after`; each brings the reading one row further."""
    for row in reader.rows(rows.wanted, after=after):
        yield Entry(rows.lines(row), 1, _held(row, questions=rows.questions))


def _held(row: Row, *, questions: int) -> int:
    """Texts are written into every job, images are kept once."""
    text = sum(len(cell) for cell in row.cells if isinstance(cell, str))
    return text * questions + sum(len(cell) for cell in row.cells if isinstance(cell, bytes))
