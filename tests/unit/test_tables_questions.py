"""A row becomes a job for each question, or says in each which column is wrong and what to do."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.chat import ChatRules, ModelRules
from app.errors import RequestError
from app.lines import BadLine, ParsedLine
from app.messages import LOW_DETAIL_PIXELS
from app.references import RefKind
from app.schemas.tables import Question, Table
from app.tables.base import Cell, InputError, Row
from app.tables.columns import find_column
from app.tables.questions import RowReader, check_spec
from app.tables.spec import read_spec
from app.tables.templates import parse_template

RULES = ChatRules(models={"demo": ModelRules("demo", 100, 64)}, images_per_job=2)
COLUMNS = ("sku", "front", "back", "title")
URL = "https://a.example/1.jpg"


def made(cells: Sequence[Cell], *, number: int = 1, **changes: Any) -> list[ParsedLine | BadLine]:
    """The lines of one row of COLUMNS."""
    spec = read_spec(
        {
            "image_columns": ["front"],
            "id_column": "sku",
            "questions": [{"name": "answer", "ask": "What is the {title}?"}],
            "body": {"model": "demo"},
        }
        | changes
    )
    reader = RowReader(spec, check_spec(spec, RULES), COLUMNS, RULES)
    return reader.lines(Row(number, [cells[at] for at in reader.wanted]))


def job(cells: Sequence[Cell], **changes: Any) -> ParsedLine:
    (line,) = made(cells, **changes)
    assert isinstance(line, ParsedLine), line
    return line


def fault(cells: Sequence[Cell], **changes: Any) -> tuple[str, str | None, str]:
    """Code, column and message."""
    (line,) = made(cells, **changes)
    assert isinstance(line, BadLine), line
    return line.error.code, line.error.param, line.error.message


def test_images_come_before_the_question() -> None:
    found = job(["A1", URL, "s3://photos/2.jpg", "cup"], image_columns=["front", "back"])
    assert [image.kind for image in found.request.images] == [RefKind.URL, RefKind.S3]
    assert found.request.prompt["turns"][0]["parts"] == [
        {"image": 0},
        {"image": 1},
        {"text": "What is the cup?"},
    ]


def test_an_image_column_may_be_empty_where_another_is_not() -> None:
    found = job(["A1", " ", URL, "cup"], image_columns=["front", "back"])
    assert found.request.image_params == ("back",)


def test_bytes_are_an_image() -> None:
    (image,) = job(["A1", b"png", None, "cup"]).request.images
    assert (image.kind, image.data) == (RefKind.DATA, b"png")


def test_a_system_prompt_and_what_all_share_is_in_every_job() -> None:
    found = job(
        ["A1", URL, "", "cup"], system="{{{sku}}}", body={"model": "demo", "max_tokens": 3, "detail": "low"}
    )
    assert found.request.prompt["turns"][0] == {"role": "system", "parts": [{"text": "{A1}"}]}
    assert found.request.params == {"max_tokens": 3, "max_pixels": LOW_DETAIL_PIXELS}


def test_a_column_may_hold_the_question() -> None:
    found = job(["A1", URL, "", "{x} 100%?"], questions=[], question_column="title")
    assert found.request.prompt["turns"][0]["parts"][1] == {"text": "{x} 100%?"}


def test_each_question_has_a_line_and_an_id_of_its_own() -> None:
    questions = [{"name": "a", "ask": "?"}, {"name": "b", "ask": "!"}]
    found = made(["A1", URL, "", ""], number=3, questions=questions)
    assert [(line.line, line.custom_id) for line in found] == [(5, "A1:a"), (6, "A1:b")]


def test_a_question_that_fails_harms_no_other() -> None:
    questions = [{"name": "a", "ask": "{title}"}, {"name": "b", "ask": "!"}]
    found = made(["A1", URL, "", ""], questions=questions)
    assert [isinstance(line, BadLine) for line in found] == [True, False]


@pytest.mark.parametrize(
    ("cells", "code", "column"),
    [
        (["", URL, "", "cup"], "missing_id", "sku"),
        (["A" * 513, URL, "", "cup"], "invalid_custom_id", "sku"),
        (["A\0", URL, "", "cup"], "invalid_character", "sku"),
        ([b"A1", URL, "", "cup"], "invalid_cell", "sku"),
        (["A1", "", "", "cup"], "missing_image", "front"),
        (["A1", b"", "", "cup"], "missing_image", "front"),
        (["A1", "photos/1.jpg", "", "cup"], "bad_url", "front"),
        (["A1", "file:///etc/passwd", "", "cup"], "blocked_url", "front"),
        (["A1", URL, "", "x" * 101], "invalid_request", None),
    ],
)
def test_a_fault_names_row_and_column(cells: Sequence[Cell], code: str, column: str | None) -> None:
    found = fault(cells, number=7)
    assert found[:2] == (code, column)
    assert found[2].startswith(f"Row 7, column '{column}': " if column else "Row 7: ")


@pytest.mark.parametrize("cell", ["", "  ", None])
def test_an_empty_question_is_not_asked(cell: Cell) -> None:
    found = fault(["A1", URL, "", cell], questions=[], question_column="title")
    assert found[:2] == ("missing_question", "title")


@pytest.mark.parametrize(
    ("name", "at"), [("sku", 0), ("SKU", 0), (" Image Url", 1), ("Title", 3), ("title", 2), ("size ", 4)]
)
def test_columns_are_found_whatever_their_case(name: str, at: int) -> None:
    assert find_column(name, (" Sku ", "IMAGE URL", "title", "Title", "size"), param="p") == at


@pytest.mark.parametrize(
    ("name", "code"), [("colour", "missing_column"), ("TITLE", "duplicate_column"), ("a", "duplicate_column")]
)
def test_a_column_that_cannot_be_told_is_refused(name: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        find_column(name, ("title", "Title", "a", "a"), param="table.id_column")
    assert (caught.value.errors[0].code, caught.value.errors[0].param) == (code, "table.id_column")


@pytest.mark.parametrize("template", ["{", "}", "{}", "a { b", "{a{b}", "{a}}", "{{a}", "\ud800"])
def test_a_brace_that_is_neither_is_refused(template: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_template("ask", template)
    assert caught.value.param == "ask"


def test_a_percent_sign_is_text() -> None:
    assert parse_template("ask", "100%s {a}%").fill(["%d"]) == "100%s %d%"


PARTS = st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(0, 9)))


@given(PARTS)
def test_what_is_written_as_a_template_is_filled_as_it_was_meant(parts: list[str | int]) -> None:
    escaped = [
        f"{{c{part}}}" if isinstance(part, int) else part.replace("{", "{{").replace("}", "}}")
        for part in parts
    ]
    template = parse_template("ask", "".join(escaped))
    assert template.fill(f"<%s {name}>" for name in template.columns) == "".join(
        f"<%s c{part}>" if isinstance(part, int) else part for part in parts
    )


def test_tables_choices_hold_the_answer() -> None:
    """And a schema beside them is one form too many."""
    question = {"name": "answer", "ask": "Cup?", "choices": ["yes", "no"]}
    found = job(["A1", URL, "", ""], questions=[question])
    assert found.request.params["constraint"] == {"choice": ["yes", "no"]}
    with pytest.raises(ValidationError):
        Question.model_validate(question | {"schema": {}})


def test_tables_choices_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(RequestError) as caught:
        job(["A1", URL, "", ""], questions=[{"name": "a", "ask": "Cup?", "choices": [""]}])
    assert caught.value.param == "table.questions[0].choices"


def test_a_table_without_choices_is_stored_as_before_there_were_any() -> None:
    assert "choices" not in Table(questions=[Question(ask="Cup?")]).stored()["questions"][0]
