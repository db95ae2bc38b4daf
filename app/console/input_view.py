"""The first rows of an input, and a preview's answers, as their page shows them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.console.asking import (
    COLUMNS_SHOWN,
    DELIMITERS,
    MOST_COLUMNS,
    MOST_QUESTIONS,
    WINDOWS,
    CellView,
    cell_view,
)
from app.console.formats import clipped
from app.lines import BadLine, ParsedLine
from app.previews import Asked, Head, LinesHead
from app.states import Endpoint
from app.store.previews import Answered

TEXT_CHARS = 200
OPTIONS = {
    "delimiters": DELIMITERS,
    "windows": WINDOWS,
    "endpoints": [one.value for one in Endpoint],
    "most_questions": MOST_QUESTIONS,
}


@dataclass(frozen=True)
class RowView:
    number: int
    cells: Sequence[CellView]
    problem: str | None = None


@dataclass(frozen=True)
class LineView:
    """A request of a file of lines: `text` is the last that it says."""

    number: int
    custom_id: str | None
    model: str = ""
    text: str = ""
    images: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class InputView:
    """A table (`head`) or lines; `count` is None where nothing is known.

    Where it is not exact it is a guess for lines, and of a table the least that there may be.
    """

    head: Head | None = None
    columns: Sequence[str] = ()  # that may be chosen
    hidden_columns: int = 0  # of the first rows
    rows: Sequence[RowView] = ()
    lines: Sequence[LineView] = ()
    count: int | None = None
    is_exact: bool = True
    endpoint: str = Endpoint.CHAT.value
    problem: str | None = None


@dataclass(frozen=True)
class AnswerView:
    """What came of one question about one row: `state` is a job's, or `refused` where there is none."""

    state: str
    text: str = ""
    error: str = ""
    code: str | None = None


@dataclass(frozen=True)
class AskedRow:
    number: int
    picture: str | None
    answers: Sequence[AnswerView]


@dataclass(frozen=True)
class PreviewView:
    questions: Sequence[str]
    rows: Sequence[AskedRow]
    waits: bool

    @property
    def ended(self) -> int:
        return sum(one.state not in WAITING for row in self.rows for one in row.answers)

    @property
    def total(self) -> int:
        return sum(len(row.answers) for row in self.rows)


WAITING = ("waiting", "ready", "queued", "running")


def table_view(head: Head) -> InputView:
    rows = [
        RowView(
            row.number,
            [cell_view(cell) for cell in row.cells[:COLUMNS_SHOWN]],
            row.problem.message if row.problem else None,
        )
        for row in head.rows
    ]
    return InputView(
        head=head,
        columns=head.columns[:MOST_COLUMNS],
        hidden_columns=max(0, len(head.columns) - COLUMNS_SHOWN),
        rows=rows,
        count=head.count,
        is_exact=head.is_exact,
    )


def lines_view(head: LinesHead, endpoint: str) -> InputView:
    lines = [_line_view(line) for line in head.lines]
    return InputView(lines=lines, count=head.count, is_exact=head.is_exact, endpoint=endpoint)


def preview_view(
    asked: Sequence[Asked], answered: Mapping[str, Answered], link: Callable[[str], str]
) -> PreviewView | None:
    """A row for each row that was asked about, None without any. `link` makes a picture's address."""
    if not asked:
        return None
    questions = list(dict.fromkeys(one.question for one in asked))
    by_row: dict[int, list[Asked]] = {}
    for one in asked:
        by_row.setdefault(one.row, []).append(one)
    rows = [
        AskedRow(number, _picture(found, answered, link), [_answer_view(one, answered) for one in found])
        for number, found in by_row.items()
    ]
    waits = any(one.state in WAITING for row in rows for one in row.answers)
    return PreviewView(questions, rows, waits)


def _answer_view(asked: Asked, answered: Mapping[str, Answered]) -> AnswerView:
    if asked.job is None:
        return AnswerView("refused", error=asked.error or "")
    found = answered.get(asked.job)
    if found is None:
        return AnswerView("gone")
    return AnswerView(found.state.value, found.answer or "", found.error_message or "", found.error_code)


def _picture(
    asked: Sequence[Asked], answered: Mapping[str, Answered], link: Callable[[str], str]
) -> str | None:
    found = (answered.get(one.job) for one in asked if one.job)
    hashes = (one.content_hash for one in found if one is not None and one.content_hash)
    return next((link(one) for one in hashes), None)


def _line_view(line: ParsedLine | BadLine) -> LineView:
    if isinstance(line, BadLine):
        return LineView(line.line, line.custom_id, problem=line.error.message)
    texts = [
        part["text"] for turn in line.request.prompt["turns"] for part in turn["parts"] if "text" in part
    ]
    text = clipped(texts[-1] if texts else "", TEXT_CHARS)
    return LineView(line.line, line.custom_id, line.request.model, text, len(line.request.images))
