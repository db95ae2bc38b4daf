"""The rows of a table with the answers to what was asked of each. Pure."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import groupby

from app.checks import Json
from app.exports.answers import AnswerColumns
from app.exports.columns import Cells, Column, Kind, with_own_names
from app.exports.jobs import ExportedJob
from app.states import ENDED_JOB, JobState
from app.tables.base import Cell, Row
from app.tables.spec import Question, TableSpec


@dataclass(frozen=True)
class AskedRow:
    """A row by its number, its cells, and its jobs by question."""

    number: int
    cells: Cells
    jobs: Mapping[int, ExportedJob]

    def is_completed(self, questions: int) -> bool:
        """Whether every question has its answer."""
        return len(self.jobs) == questions and all(
            job.state is JobState.COMPLETED for job in self.jobs.values()
        )

    def has_failed(self) -> bool:
        """Whether a question ended without an answer."""
        return any(job.state in ENDED_JOB - {JobState.COMPLETED} for job in self.jobs.values())


# What tells the rows of an export without the input's columns.
ROW_COLUMNS = (Column("row", Kind.INTEGER), Column("id"))


def asked_rows(jobs: Iterable[ExportedJob], spec: TableSpec) -> Iterator[AskedRow]:
    """Rows that have jobs, in order, by their number and id."""
    for number, of_row in groupby(jobs, key=lambda job: spec.row(job.line)):
        asked = {job.line - spec.line(number, 0): job for job in of_row}
        yield AskedRow(number, (number, _row_id(asked, spec)), asked)


def joined(
    rows: Iterable[Row], asked: Iterator[AskedRow], *, width: int, only_asked: bool = False
) -> Iterator[AskedRow]:
    """The input's rows with their jobs; one that has none yet is left out where `only_asked`."""
    waiting = next(asked, None)
    for row in rows:
        jobs: Mapping[int, ExportedJob] = {}
        if waiting is not None and waiting.number == row.number:
            jobs, waiting = waiting.jobs, next(asked, None)
        if jobs or not only_asked:
            cells = [_text(cell) for cell in row.cells]
            yield AskedRow(row.number, cells or [None] * width, jobs)


def with_answers(
    input_columns: Sequence[Column], rows: Iterable[AskedRow], spec: TableSpec
) -> tuple[Sequence[Column], Iterator[Cells]]:
    """All columns, and the rows that they are of."""
    columns = with_own_names(input_columns)
    answers: list[AnswerColumns] = []
    for question in spec.questions:
        answers.append(_with_free_names(question, {column.name for column in columns}))
        columns += answers[-1].columns

    def cells(row: AskedRow) -> Cells:
        asked = (one.cells(row.jobs.get(at)) for at, one in enumerate(answers))
        return [*row.cells, *(cell for cells in asked for cell in cells)]

    return columns, map(cells, rows)


def _with_free_names(question: Question, taken: Set[str]) -> AnswerColumns:
    """Its columns; where one of their names is taken all get the same number, so that they go together."""
    for count in itertools.count(1):
        name = question.name if count == 1 else f"{question.name}_{count}"
        found = AnswerColumns(replace(question, name=name))
        if not taken & {column.name for column in found.columns}:
            return found
    raise AssertionError


def _text(cell: Cell) -> Json:
    return cell if isinstance(cell, str) else None


def _row_id(jobs: Mapping[int, ExportedJob], spec: TableSpec) -> str | None:
    """As the row's custom_ids begin; none has one where the id itself is at fault."""
    for at, job in jobs.items():
        if job.custom_id is not None:
            several = len(spec.questions) > 1
            return job.custom_id.removesuffix(f":{spec.questions[at].name}") if several else job.custom_id
    return None
