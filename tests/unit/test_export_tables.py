"""Answers beside the rows that were asked about: which cell an answer, an error and its absence make."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.exports.answers import CUT, AnswerColumns, read_object
from app.exports.columns import Cells, Column, Kind
from app.exports.jobs import ExportedJob
from app.exports.tables import AskedRow, asked_rows, joined, with_answers
from app.results import AnsweredJob, UnansweredJob
from app.states import JobState
from app.tables.base import Row, RowProblem
from app.tables.spec import Question, TableSpec

PLAIN = Question("colour", "What colour?")
FORMED = Question(
    "it",
    "What is it?",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "count": {"type": ["integer", "null"]},
            "sure": {"type": "boolean"},
            "share": {"type": "number"},
            "parts": {"type": "array"},
        },
    },
)
SPEC = TableSpec(["image"], [PLAIN, Question("size", "What size?")])


def answered(text: str, line: int = 1, custom_id: str = "r1", finish_reason: str = "stop") -> ExportedJob:
    ended = AnsweredJob(
        1, line, custom_id, "demo", datetime(2026, 1, 1, tzinfo=UTC), text, finish_reason, 1, 0, 1, "rev"
    )
    return ExportedJob(line, custom_id, JobState.COMPLETED, ended)


def failed(line: int = 1, custom_id: str | None = "r1") -> ExportedJob:
    ended = UnansweredJob(1, line, custom_id, JobState.FAILED, "http_404", "Row 1: gone.", None)
    return ExportedJob(line, custom_id, JobState.FAILED, ended)


def cells(question: Question, job: ExportedJob | None) -> Cells:
    return AnswerColumns(question).cells(job)


def test_a_question_has_a_column_for_its_answers_and_one_for_errors() -> None:
    assert AnswerColumns(PLAIN).columns == [Column("colour"), Column("colour_error")]
    assert cells(PLAIN, answered("red")) == ("red", None)
    assert cells(PLAIN, failed()) == (None, "http_404: Row 1: gone.")
    assert cells(PLAIN, None) == (None, None)


def test_an_answer_that_was_cut_says_so() -> None:
    assert cells(PLAIN, answered("a long st", finish_reason="length")) == ("a long st", CUT)
    cut = answered('{"name": "cup"}', finish_reason="length")
    assert cells(FORMED, cut) == (None, None, None, None, None, CUT)


def test_a_schema_has_a_typed_column_for_each_property() -> None:
    assert AnswerColumns(FORMED).columns == [
        Column("it.name"),
        Column("it.count", Kind.INTEGER),
        Column("it.sure", Kind.BOOLEAN),
        Column("it.share", Kind.NUMBER),
        Column("it.parts", Kind.JSON),
        Column("it_error"),
    ]
    text = '```json\n{"name": "cup", "count": null, "share": 1, "parts": ["lid"], "more": 1}\n```'
    assert cells(FORMED, answered(text)) == ("cup", None, None, 1, ["lid"], None)


def test_a_value_of_another_kind_is_told_and_left_out() -> None:
    found = cells(FORMED, answered('{"name": 5, "count": 7}'))
    assert (found[0], found[1]) == (None, 7)
    assert found[-1] == "invalid_json: name is 5, which is no text."


@pytest.mark.parametrize("text", ["", "red", "[1]", '{"a": NaN}', '{"a": 1e999}', '{"a": ', "[" * 10**5])
def test_what_is_no_json_object_is_told(text: str) -> None:
    found = cells(FORMED, answered(text))
    assert found[:-1] == (None,) * 5
    assert str(found[-1]).startswith("invalid_json: The answer is no JSON object")
    assert len(str(found[-1])) < 300


@pytest.mark.parametrize("schema", [None, {}, {"type": "string"}, {"properties": {}}, {"properties": 5}])
def test_a_schema_without_properties_has_one_column(schema: dict[str, Any] | None) -> None:
    assert AnswerColumns(Question("q", "?", schema)).columns == [Column("q"), Column("q_error")]


@given(st.text())
def test_any_answer_can_be_read(text: str) -> None:
    assert read_object(text) is None or text.strip()


def test_rows_without_their_table_have_their_number_and_id() -> None:
    jobs = [answered("red", 3, "B7:colour"), failed(4, None), failed(5, None), failed(6, None)]
    rows = list(asked_rows(jobs, SPEC))
    assert [(row.number, row.cells, sorted(row.jobs)) for row in rows] == [
        (2, (2, "B7"), [0, 1]),
        (3, (3, None), [0, 1]),
    ]


def test_rows_meet_their_jobs_and_those_without_are_empty() -> None:
    asked = iter([AskedRow(2, (), {0: answered("red", 3)})])
    rows = [Row(1, ["a"]), Row(2, ["b"]), Row(3, (), RowProblem("invalid_encoding", "Not UTF-8."))]
    columns, found = with_answers([Column("id")], joined(rows, asked, width=1), SPEC)
    assert [column.name for column in columns] == ["id", "colour", "colour_error", "size", "size_error"]
    assert list(found) == [
        ["a", None, None, None, None],
        ["b", "red", None, None, None],
        [None, None, None, None, None],
    ]


@given(st.lists(st.booleans(), max_size=20), st.booleans())
def test_each_row_meets_its_own_jobs_only(is_asked: Sequence[bool], only_asked: bool) -> None:
    numbers = [number for number, asked in enumerate(is_asked, 1) if asked]
    rows = [Row(number, [str(number)]) for number in range(1, len(is_asked) + 1)]
    asked = (AskedRow(number, (), {0: failed(SPEC.line(number, 0))}) for number in numbers)
    found = list(joined(rows, asked, width=1, only_asked=only_asked))
    assert [row.number for row in found if row.jobs] == numbers
    assert all(SPEC.row(row.jobs[0].line) == row.number for row in found if row.jobs)
    assert len(found) == (len(numbers) if only_asked else len(rows))


def test_a_row_is_completed_when_all_was_answered_and_failed_when_anything_was() -> None:
    both, half = {0: answered("a"), 1: answered("b")}, {0: answered("a"), 1: failed()}
    assert AskedRow(1, (), both).is_completed(2)
    assert not AskedRow(1, (), {0: answered("a")}).is_completed(2)
    assert (AskedRow(1, (), half).has_failed(), AskedRow(1, (), both).has_failed()) == (True, False)


def test_an_input_column_keeps_its_name_and_an_answer_of_that_name_gets_another() -> None:
    columns, _ = with_answers([Column("colour"), Column("colour")], [], TableSpec(["image"], [PLAIN]))
    assert [column.name for column in columns] == ["colour", "colour_2", "colour_3", "colour_3_error"]
