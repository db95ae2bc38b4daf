"""A look at an input before its batch: its first rows, and the answers to what is to be asked of them."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import Lock

from app.actor import actor
from app.chat import chat_rules
from app.checks import Json
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import RequestError
from app.files import Files
from app.ids import job_name, job_number
from app.jobs import Jobs
from app.lines import BadLine, LineRules, ParsedLine, parse_line, split_lines
from app.objects import ObjectStore
from app.store import audit
from app.store.files import FileRow
from app.store.previews import Answered, read_answered
from app.tables.base import InputError, Row
from app.tables.checks import check_format, table_checks
from app.tables.names import is_local_name
from app.tables.opening import open_table, row_entries
from app.tables.questions import RowReader, check_spec
from app.tables.spec import TableSpec, read_spec

ROWS = 5
# Of one preview: somebody waits for them, and others wait behind them.
MOST_JOBS = 50
# For counting the rows of a table that does not tell, once per file: about 200,000 short rows.
COUNT_S = 0.5
MOST_KEPT = 200


@dataclass(frozen=True)
class Layout:
    """How a table is to be read where that is not to be guessed."""

    delimiter: str | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class Head:
    """A table's columns and first rows; `count` is how many rows it has, or at least, if not `is_exact`.

    `local` has the number of cells that name pictures on their owner's machine by the column's place, of the
    first `looked` rows.
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    count: int
    is_exact: bool
    local: Mapping[int, int] = field(default_factory=dict[int, int])
    looked: int = 0


@dataclass
class Tally:
    """What is known of a table's rows so far."""

    rows: int = 0
    is_exact: bool = False
    local: Counter[int] = field(default_factory=Counter[int])

    def add(self, row: Row) -> None:
        self.rows += 1
        for at, cell in enumerate(row.cells):
            if isinstance(cell, str) and is_local_name(cell):
                self.local[at] += 1


@dataclass(frozen=True)
class LinesHead:
    """The first requests of a file of lines; `count` is how many it has, `is_exact` if that was counted."""

    lines: Sequence[ParsedLine | BadLine]
    count: int
    is_exact: bool


@dataclass(frozen=True)
class Asked:
    """A job of a preview, by its public name, or why there is none. `row` counts rows or lines from 1."""

    row: int
    question: str
    job: str | None = None
    error: str | None = None


class Previews:
    def __init__(
        self,
        *,
        sessions: Sessions,
        files: Files,
        jobs: Jobs,
        objects: ObjectStore,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._files = files
        self._jobs = jobs
        self._objects = objects
        self._tables = table_checks(settings)
        self._rules = chat_rules(settings)
        self._image_max_bytes = settings.image_max_bytes
        self._clock = clock
        self._lock = Lock()
        self._counts: OrderedDict[tuple[str, Layout], Tally] = OrderedDict()

    def head(self, file: FileRow, layout: Layout) -> Head:
        """InputError where it is no table. One that does not tell its size is read on for `COUNT_S`, once."""
        spec = TableSpec((), (), delimiter=layout.delimiter, encoding=layout.encoding)
        with open_table(
            self._objects, file.object_key, file.filename, spec, image_max_bytes=self._image_max_bytes
        ) as table:
            rows = table.rows(range(len(table.columns)))
            found = list(islice(rows, ROWS))
            if table.count is not None:
                seen = Tally()
                for row in found:
                    seen.add(row)
                return Head(table.columns, found, table.count, True, seen.local, seen.rows)
            seen = self._count(file.object_key, layout, chain(found, rows))
            return Head(table.columns, found, seen.rows, seen.is_exact, seen.local, seen.rows)

    def _count(self, key: str, layout: Layout, rows: Iterator[Row]) -> Tally:
        """How many rows there are, and whether that is all; a stored file stays as it is."""
        with self._lock:
            kept = self._counts.get((key, layout))
        if kept is None:
            kept = self._count_on(rows)
            with self._lock:
                self._counts[key, layout] = kept
                while len(self._counts) > MOST_KEPT:
                    self._counts.popitem(last=False)
        return kept

    def _count_on(self, rows: Iterator[Row]) -> Tally:
        seen, until = Tally(), self._clock() + COUNT_S
        try:
            for row in rows:
                seen.add(row)
                if seen.rows > ROWS and self._clock() > until:
                    return seen
        except InputError:  # of a row far behind those that are shown: its batch will say so
            return seen
        seen.is_exact = True
        return seen

    def lines(self, file: FileRow, endpoint: str) -> LinesHead:
        """The rest of the file is counted by the size of its first lines."""
        rules, found, size, is_whole = LineRules(endpoint, self._rules), list[ParsedLine | BadLine](), 0, True
        with closing(self._objects.open(file.object_key)) as chunks:
            for raw in split_lines(chunks):
                if len(found) == ROWS and not raw.is_blank:
                    is_whole = False
                    break
                size += raw.size
                if not raw.is_blank:
                    found.append(parse_line(raw.data, raw.number, rules))
        count = len(found) if is_whole else round(file.bytes * len(found) / size)
        return LinesHead(found, count, is_whole)

    def ask_rows(self, tenant_id: str, file_id: str, table: Mapping[str, Json]) -> Sequence[Asked]:
        """Ask a table's questions about its first rows: fewer of these, where the questions are many.

        RequestError names the field that is wrong; InputError what the table has not.
        """
        file = self._files.read(tenant_id, file_id)
        check_format(file.filename, table)
        spec = read_spec(self._tables.settled(table))
        asked = check_spec(spec, self._rules)
        names = [question.name for question in spec.questions]
        with open_table(
            self._objects, file.object_key, file.filename, spec, image_max_bytes=self._image_max_bytes
        ) as reader:
            rows = RowReader(spec, asked, reader.columns, self._rules)
            entries = list(
                islice(row_entries(reader, rows, after=0), min(ROWS, max(1, MOST_JOBS // len(names))))
            )
        lines = [
            (spec.row(line.line), name, line)
            for entry in entries
            for line, name in zip(entry.lines, names, strict=True)
        ]
        return self._ask_all(tenant_id, file_id, lines[:MOST_JOBS])

    def ask_lines(self, tenant_id: str, file_id: str, endpoint: str) -> Sequence[Asked]:
        """Ask the first requests of a file of lines."""
        file = self._files.read(tenant_id, file_id)
        check_format(file.filename, None)
        lines = [(line.line, "", line) for line in self.lines(file, endpoint).lines]
        return self._ask_all(tenant_id, file_id, lines)

    def look(self, tenant_id: str, names: Sequence[str]) -> Mapping[str, Answered]:
        """How far these jobs are, by their names; those of others are left out."""
        ids = [job_number(name) for name in names[:MOST_JOBS]]
        with transaction(self._sessions) as session:
            return {job_name(one.id): one for one in read_answered(session, tenant_id, ids)}

    def _ask_all(
        self, tenant_id: str, file_id: str, lines: Sequence[tuple[int, str, ParsedLine | BadLine]]
    ) -> Sequence[Asked]:
        """One line of the audit log for all of them."""
        asked = [self._ask(tenant_id, *one) for one in lines]
        if made := [one.job for one in asked if one.job]:
            with transaction(self._sessions) as session:
                audit.note(session, actor(), "preview.created", file_id, {"jobs": made}, tenant_id=tenant_id)
        return asked

    def _ask(self, tenant_id: str, row: int, question: str, line: ParsedLine | BadLine) -> Asked:
        if isinstance(line, BadLine):
            return Asked(row, question, error=line.error.message)
        try:
            return Asked(row, question, job_name(self._jobs.submit_preview(tenant_id, line.request).id))
        except RequestError as error:
            return Asked(row, question, error=error.message)
