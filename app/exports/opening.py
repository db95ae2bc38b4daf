"""Opens a batch as an export, which is then read page by page, while the batch runs or afterwards."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum

from app.batches import found
from app.db import Sessions, transaction
from app.errors import Conflict, Overloaded
from app.exports.columns import Cells, Column
from app.exports.formats import in_blocks, write_csv, write_ndjson
from app.exports.jobs import COLUMNS, job_cells, result_lines
from app.exports.reading import JobReader
from app.exports.tables import ROW_COLUMNS, AskedRow, asked_rows, joined, with_answers
from app.objects import ObjectMissing, ObjectStore
from app.shares import Places
from app.states import ENDED_JOB, BatchStatus, JobState
from app.store import exports as store
from app.store.batches import BatchRow, read_batch
from app.store.files import FileRow, read_file
from app.tables.base import InputError, TableReader
from app.tables.opening import open_table
from app.tables.places import is_place
from app.tables.spec import TableSpec, read_spec

# At once; each holds a page of jobs, and a row group or a piece of the input: 40 MiB or so.
MOST_OPEN = 8
RETRY_AFTER_S = 10
REMEDY = "With columns=answers there are the answers without the input's columns."


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    NDJSON = "ndjson"
    JSONL = "jsonl"  # the lines of a batch's output and error files


class Rows(StrEnum):
    ALL = "all"
    COMPLETED = "completed"
    FAILED = "failed"  # or cancelled, or expired: whatever ended without an answer


class Columns(StrEnum):
    """Of a table."""

    ALL = "all"
    ANSWERS = "answers"  # without the input's


def _write_parquet(columns: Sequence[Column], rows: Iterable[Cells]) -> Iterator[bytes]:
    """Imported by who writes such a file: pyarrow takes 30 MiB of every process that has it."""
    from app.exports.parquet import write_parquet

    return write_parquet(columns, rows)


CONTENT_TYPES: Mapping[Format, str] = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.NDJSON: "application/x-ndjson",
    Format.JSONL: "application/jsonl; charset=utf-8",
}
WRITERS: Mapping[Format, Callable[[Sequence[Column], Iterable[Cells]], Iterator[bytes]]] = {
    Format.CSV: write_csv,
    Format.PARQUET: _write_parquet,
    Format.NDJSON: write_ndjson,
}
STATES: Mapping[Rows, frozenset[JobState]] = {
    Rows.ALL: frozenset(JobState),
    Rows.COMPLETED: frozenset({JobState.COMPLETED}),
    Rows.FAILED: ENDED_JOB - {JobState.COMPLETED},
}


@dataclass(frozen=True)
class ExportWish:
    """`retries`: of each line the newest answer among the batch's and those of its retries."""

    format: Format = Format.CSV
    rows: Rows = Rows.ALL
    columns: Columns = Columns.ALL
    retries: bool = False


@dataclass(frozen=True)
class Export:
    filename: str
    content_type: str
    blocks: Generator[bytes]


class Exports:
    def __init__(self, *, sessions: Sessions, objects: ObjectStore, image_max_bytes: int) -> None:
        self._sessions = sessions
        self._objects = objects
        self._image_max_bytes = image_max_bytes
        self._places = Places(MOST_OPEN)

    def open(self, tenant_id: str, batch_id: str, wish: ExportWish) -> Export:
        """What can be refused is refused here; where reading breaks off later, `blocks` raises.

        `Conflict` where the batch's file did not pass, or where the input's columns are wanted and it is
        gone; `Overloaded` where too many are open.
        """
        with transaction(self._sessions) as session:
            batch = found(read_batch(session, tenant_id, batch_id), batch_id)
            file = read_file(session, tenant_id, batch.input_file_id)
            retries = store.read_retries(session, batch_id) if wish.retries else []
        if batch.status is BatchStatus.FAILED and not batch.total:
            raise _unread(batch)
        reader = JobReader(self._sessions, batch_id, retries)
        with ExitStack() as stack:
            self._take_place(stack, tenant_id)
            blocks = self._blocks(stack, batch, file, reader, wish)
            held = _held(blocks, stack.pop_all())
        next(held)  # so that it lets everything go even if nobody reads it
        part = "" if wish.rows is Rows.ALL else f"-{wish.rows.value}"
        return Export(f"{batch.id}{part}.{wish.format.value}", CONTENT_TYPES[wish.format], held)

    def _take_place(self, stack: ExitStack, tenant_id: str) -> None:
        message = f"Your share of the {MOST_OPEN} exports at once is taken: wait until one is over."
        refusal = Overloaded(message, code="too_many_exports", retry_after_s=RETRY_AFTER_S)
        stack.enter_context(self._places.held(tenant_id, refusal))

    def _blocks(
        self, stack: ExitStack, batch: BatchRow, file: FileRow | None, reader: JobReader, wish: ExportWish
    ) -> Iterator[bytes]:
        if wish.format is Format.JSONL:
            return in_blocks(result_lines(reader.jobs(STATES[wish.rows]), batch.endpoint))
        columns, rows = COLUMNS, map(job_cells, reader.jobs(STATES[wish.rows]))
        if batch.input_table is not None:
            columns, rows = self._table(stack, batch, file, reader, wish)
        return WRITERS[wish.format](columns, rows)

    def _table(
        self, stack: ExitStack, batch: BatchRow, file: FileRow | None, reader: JobReader, wish: ExportWish
    ) -> tuple[Sequence[Column], Iterator[Cells]]:
        assert batch.input_table is not None
        spec = read_spec(batch.input_table)
        columns, rows = list(ROW_COLUMNS), asked_rows(reader.jobs(frozenset(JobState)), spec)
        if wish.columns is Columns.ALL:
            table = self._open(stack, batch, file, spec)
            columns = [Column(table.columns[at].strip()) for at in table.texts]
            # A retry asks about some rows, and is about no others.
            rows = joined(
                table.rows(table.texts), rows, width=len(columns), only_asked=batch.retry_of is not None
            )
        return with_answers(columns, _chosen(rows, wish.rows, len(spec.questions)), spec)

    def _open(self, stack: ExitStack, batch: BatchRow, file: FileRow | None, spec: TableSpec) -> TableReader:
        if is_place(batch.input_file_id):
            message = f"Batch {batch.id} has not listed {batch.input_file_id} yet: try again in a moment."
            raise Conflict(message, param="batch_id", code="not_listed_yet")
        if file is None:
            raise _gone(batch)
        try:
            return stack.enter_context(
                open_table(
                    self._objects, file.object_key, file.filename, spec, image_max_bytes=self._image_max_bytes
                )
            )
        except ObjectMissing as error:
            raise _gone(batch) from error
        except InputError as error:
            message = f"The input of batch {batch.id} cannot be read: {error} {REMEDY}"
            raise Conflict(message, param="columns", code="input_unreadable") from error


def _held(blocks: Iterator[bytes], stack: ExitStack) -> Generator[bytes]:
    """The blocks, what they need being held until the last one, or until nobody wants more."""
    with stack:
        yield b""
        yield from blocks


def _chosen(rows: Iterable[AskedRow], wanted: Rows, questions: int) -> Iterator[AskedRow]:
    match wanted:
        case Rows.ALL:
            yield from rows
        case Rows.COMPLETED:
            yield from (row for row in rows if row.is_completed(questions))
        case Rows.FAILED:
            yield from (row for row in rows if row.has_failed())


def _unread(batch: BatchRow) -> Conflict:
    """There is no answer, nor the error of a row: a table without either would look like one that passed."""
    first = batch.errors[0] if batch.errors else None
    line = f" in line {first.line}" if first and first.line else ""
    reason = f": {first.code}{line}: {first.message}" if first else "."
    more = f" And {len(batch.errors) - 1} more: its `errors` has them." if len(batch.errors) > 1 else ""
    message = f"Batch {batch.id} did not pass, so that there is nothing to export{reason}{more}"
    return Conflict(message, param="batch_id", code="batch_failed")


def _gone(batch: BatchRow) -> Conflict:
    message = f"The input file {batch.input_file_id} of batch {batch.id} has expired or was deleted. {REMEDY}"
    return Conflict(message, param="columns", code="input_gone")
