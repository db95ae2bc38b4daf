"""Opens a batch as an export, which is then read page by page, while the batch runs or afterwards."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import BoundedSemaphore

from app.batches import found, missing
from app.config import MIB
from app.db import Sessions, transaction
from app.errors import Overloaded
from app.exports.columns import Cells, Column
from app.exports.formats import in_blocks, write_csv, write_ndjson
from app.exports.jobs import COLUMNS, ExportedJob, in_parts, job_cells, newest, result_lines
from app.exports.parquet import write_parquet
from app.results import AnsweredJob, UnansweredJob
from app.states import ENDED_JOB, JobState
from app.store import exports as store
from app.store.batches import BatchRow, read_batch
from app.store.exports import Place
from app.store.progress import read_ended

PAGE_JOBS = 1_000
# Of answers in memory at once: those with log probabilities can be a megabyte each.
PART_BYTES = 8 * MIB
# At once; each holds a page, and a row group or a piece of the input.
MOST_OPEN = 16
RETRY_AFTER_S = 10


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    NDJSON = "ndjson"
    JSONL = "jsonl"  # the lines of a batch's output and error files


class Rows(StrEnum):
    ALL = "all"
    COMPLETED = "completed"
    FAILED = "failed"  # or cancelled, or expired: whatever ended without an answer


CONTENT_TYPES: Mapping[Format, str] = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.NDJSON: "application/x-ndjson",
    Format.JSONL: "application/jsonl; charset=utf-8",
}
WRITERS: Mapping[Format, Callable[[Sequence[Column], Iterable[Cells]], Iterator[bytes]]] = {
    Format.CSV: write_csv,
    Format.PARQUET: write_parquet,
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
    retries: bool = False


@dataclass(frozen=True)
class Export:
    filename: str
    content_type: str
    blocks: Iterator[bytes]


class Exports:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions
        self._places = BoundedSemaphore(MOST_OPEN)

    def open(self, tenant_id: str, batch_id: str, wish: ExportWish) -> Export:
        """What can be refused is refused here; where reading breaks off later, `blocks` raises.

        `Overloaded` where too many are open.
        """
        with transaction(self._sessions) as session:
            batch = found(read_batch(session, tenant_id, batch_id), batch_id)
            retries = store.read_retries(session, batch_id) if wish.retries else []
        jobs = self._jobs(batch, retries, wish.rows)
        if wish.format is Format.JSONL:
            blocks = in_blocks(result_lines(jobs, batch.endpoint))
        else:
            blocks = WRITERS[wish.format](COLUMNS, map(job_cells, jobs))
        return Export(f"{batch.id}.{wish.format.value}", CONTENT_TYPES[wish.format], self._held(blocks))

    def _held(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The blocks, one of the places being taken until the last one, or until nobody wants more."""
        if not self._places.acquire(blocking=False):
            message = f"There are {MOST_OPEN} exports already: wait until one is over."
            raise Overloaded(message, code="too_many_exports", retry_after_s=RETRY_AFTER_S)

        def held() -> Generator[bytes]:
            try:
                yield b""
                yield from blocks
            finally:
                self._places.release()

        started = held()
        next(started)  # so that it lets its place go even if nobody reads it
        return started

    def _jobs(self, batch: BatchRow, retries: Sequence[str], rows: Rows) -> Iterator[ExportedJob]:
        """In the order of their lines. Raises `NotFound` where the batch is deleted meanwhile."""
        wanted = STATES[rows]
        # A retry may have made of a job anything else.
        states = frozenset(JobState) if retries else wanted
        after = 0
        while True:
            with transaction(self._sessions) as session:
                places = store.read_places(
                    session, batch.id, after=after, limit=PAGE_JOBS, states=sorted(states)
                )
                if not places:
                    break
                last = places[-1].line
                if retries:
                    again = store.read_places_again(session, retries, after=after, last=last)
                    places = newest(places, again)
                sizes = store.read_sizes(session, [place.job_id for place in places])
            for part in in_parts([one for one in places if one.state in wanted], sizes, most=PART_BYTES):
                yield from self._read(part)
            after = last
        with transaction(self._sessions) as session:
            if not store.is_there(session, batch.id):
                raise missing(batch.id)

    def _read(self, places: Sequence[Place]) -> list[ExportedJob]:
        with transaction(self._sessions) as session:
            jobs = read_ended(session, [one.job_id for one in places if one.state in ENDED_JOB])
        return [_exported(place, jobs.get(place.job_id)) for place in places]


def _exported(place: Place, ended: AnsweredJob | UnansweredJob | None) -> ExportedJob:
    return ExportedJob(place.line, place.custom_id, place.state, ended)
