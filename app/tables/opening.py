"""Opens a stored table by its format, and makes entries of its rows."""

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager

from app.blocks import Entry
from app.objects import ObjectStore
from app.tables.base import Row, TableReader
from app.tables.delimited import Delimited
from app.tables.formats import format_of
from app.tables.questions import RowReader
from app.tables.spec import TableSpec
from app.tables.templates import parse_template


@contextmanager
def open_table(objects: ObjectStore, key: str, filename: str, spec: TableSpec) -> Iterator[TableReader]:
    """Raises InputError where the file is no such table, and what the object store raises."""
    match format_of(filename, spec.format):
        case kind:
            with closing(objects.open(key)) as chunks:
                yield Delimited(
                    chunks,
                    delimiter=spec.delimiter or ("\t" if kind == "tsv" else None),
                    encoding=spec.encoding,
                    wanted=named_columns(spec),
                )


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
