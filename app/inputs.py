"""Opens the input of a batch, whatever it is, as entries behind those that are read already."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing

from app.blocks import Block, Entry, duplicate_error, duplicates, read_entries, without_ids
from app.chat import chat_rules
from app.config import Settings
from app.db import Sessions
from app.errors import LineError
from app.limits import too_many_jobs
from app.lines import LineRules, split_lines
from app.objects import ObjectMissing, ObjectStore
from app.store.ingest import IngestTask
from app.tables.base import InputError, refused
from app.tables.listing import Lister
from app.tables.opening import open_table, row_entries
from app.tables.places import is_place, read_place
from app.tables.questions import RowReader, check_spec, repeated_id
from app.tables.spec import TableSpec, read_spec

# What a batch's `errors` holds at most.
MOST_ERRORS = 100


def without_repeats(task: IngestTask, block: Block, standing: Mapping[str, int]) -> Block | None:
    """A table's block with the rows that repeat an id made bad ones; None where none does.

    `standing` are the lines of ids that stand before it. InputError for a file of lines.
    """
    found = duplicates(block, standing)
    if not found:
        return None
    if task.table is None:
        raise InputError(*[duplicate_error(line, earlier) for line, earlier in found[:MOST_ERRORS]])
    spec = read_spec(task.table)
    return without_ids(block, {line.line: repeated_id(spec, line, earlier) for line, earlier in found})


def nothing_in(task: IngestTask) -> LineError:
    """What to tell of a batch whose input has no requests at all."""
    if task.retry_of is not None:
        return LineError("nothing_to_retry", f"Batch {task.retry_of} has no jobs that could be retried.")
    has_no = "requests" if task.table is None else "rows"
    return LineError("empty_file", f"The input file is empty: it has no {has_no}.", None, "input_file_id")


class Inputs:
    def __init__(self, *, sessions: Sessions, objects: ObjectStore, settings: Settings) -> None:
        self._lister = Lister(sessions=sessions, objects=objects, settings=settings)
        self._objects = objects
        self._settings = settings
        self._rules = chat_rules(settings)

    def entries(self, task: IngestTask) -> Generator[Entry]:
        """Raises InputError where the file is gone, or cannot be read as what it was said to be."""
        try:
            if task.table is not None and is_place(task.input_file_id):
                most = self._settings.table_max_jobs // len(read_spec(task.table).questions)
                task = self._lister.keep(task, read_place(task.input_file_id), most_rows=most)
            if task.object_key is None:
                raise ObjectMissing(self._objects.bucket, "")
            if task.table is None:
                yield from self._lines(task, task.object_key)
            else:
                yield from self._rows(task, task.object_key, read_spec(task.table))
        except ObjectMissing as error:
            raise refused("file_not_found", "The input file is gone: upload it again.") from error

    def too_many(self, task: IngestTask, jobs: int) -> LineError | None:
        """What to tell of a batch that is to have so many jobs, if that is too many."""
        limit = self._settings.table_max_jobs if task.table is not None else self._settings.batch_max_lines
        if task.quota is not None and not task.quota.has_room(jobs):
            return LineError("quota_exceeded", too_many_jobs(task.quota, jobs), None, "input_file_id")
        if jobs <= limit:
            return None
        whose = "The file has too many requests"
        if task.table is not None:
            whose = "The table makes too many requests (rows times questions)"
        message = f"{whose}: the limit is {limit:,}. Split it into several."
        return LineError("too_many_tasks", message, None, "input_file_id")

    def _lines(self, task: IngestTask, key: str) -> Iterator[Entry]:
        rules = LineRules(task.endpoint, self._rules)
        with closing(self._objects.open(key, start=task.bytes)) as chunks:
            yield from read_entries(split_lines(chunks, first=task.lines + 1), rules)

    def _rows(self, task: IngestTask, key: str, spec: TableSpec) -> Iterator[Entry]:
        asked = check_spec(spec, self._rules)
        with open_table(
            self._objects, key, task.filename, spec, image_max_bytes=self._settings.image_max_bytes
        ) as reader:
            rows = RowReader(spec, asked, reader.columns, self._rules)
            jobs = (reader.count or 0) * len(spec.questions)
            if error := self.too_many(task, jobs):
                raise InputError(error)
            yield from row_entries(reader, rows, after=task.bytes)
