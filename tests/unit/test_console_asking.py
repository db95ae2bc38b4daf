"""The form that makes a batch of a file: guesses, questions, and errors beside their fields."""

import base64
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.console.asking import (
    AskForm,
    CellView,
    QuestionFields,
    asked_as_text,
    batch_of,
    cell_view,
    change_questions,
    field_of,
    first_form,
    guess_id,
    guess_image,
    opens_more,
    read_asked,
    read_form,
    table_of,
)
from app.console.input_view import preview_view
from app.errors import RequestError
from app.previews import Asked, Head
from app.schemas import BatchCreate
from app.states import JobState
from app.store.previews import Answered
from app.tables.base import Cell, Row


def head(columns: Sequence[str], *rows: Sequence[Cell]) -> Head:
    return Head(
        columns, [Row(number, cells) for number, cells in enumerate(rows, 1)], len(rows), is_exact=True
    )


def form(**fields: str) -> AskForm:
    return read_form(
        {"image": "url", "q0.name": "colour", "q0.ask": "What colour?", "q0.kind": "free"} | fields
    )


@pytest.mark.parametrize(
    ("columns", "row", "found"),
    [
        (["id", "where"], ["1", "https://a.example/1.jpg"], "where"),
        (["id", "where"], ["1", "s3://photos/1.jpg"], "where"),
        (["id", "blob"], ["1", b"\x89PNG"], "blob"),
        (["id", "Image URL"], ["1", ""], "Image URL"),
        (["id", "title"], ["1", "cup"], ""),
    ],
)
def test_the_image_is_the_column_that_looks_like_one(columns: list[str], row: list[Cell], found: str) -> None:
    assert guess_image(head(columns, row)) == found


@pytest.mark.parametrize(
    ("columns", "rows", "found"),
    [
        (["title", "SKU"], [["cup", "A1"], ["cup", "A2"]], "SKU"),
        (["product_id", "name"], [["7", "cup"], ["8", "jug"]], "product_id"),
        (["sku"], [["A1"], ["A1"]], ""),
        (["sku"], [["A1"], [""]], ""),
        (["title"], [["cup"]], ""),
    ],
)
def test_the_id_is_a_column_named_so_that_tells_rows_apart(
    columns: list[str], rows: list[list[str]], found: str
) -> None:
    assert guess_id(head(columns, *rows), "") == found


def test_a_form_begins_with_what_the_table_tells() -> None:
    begun = first_form(
        head(["sku", "photo"], ["A1", "https://a.example/1.jpg"]),
        filename="shop.csv",
        model="demo",
        endpoint="/v1/chat/completions",
    )
    assert (begun.image, begun.id_column, begun.name, begun.model) == ("photo", "sku", "shop.csv", "demo")


def test_a_filled_in_form_is_a_body_that_the_api_takes() -> None:
    filled = form(
        **{"q1.name": "kind", "q1.ask": "{title}?", "q1.kind": "choices", "q1.choices": "cup\r\n\r\njug "},
        max_tokens="8",
        near="4",
        name="mine",
        delimiter="tab",
    )
    body = BatchCreate.model_validate(batch_of(filled, "file-1", has_table=True))
    assert body.table is not None
    assert [one.choices for one in body.table.questions] == [None, ["cup", "jug"]]
    assert (body.table.body, body.table.delimiter) == ({"max_tokens": 8, "logprobs": True}, "\t")
    assert (body.near_duplicates and body.near_duplicates.distance, body.metadata) == (4, {"name": "mine"})


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({}, False),
        ({"q0.kind": "choices", "q0.choices": "red"}, True),
        ({"q0.kind": "schema", "q0.schema": "{}"}, True),
        ({"q0.kind": "choices", "q0.choices": "red", "sure": "off"}, False),
        ({"sure": "on"}, True),
    ],
)
def test_how_sure_an_answer_is_is_kept_where_it_gets_labels_or_as_one_chooses(
    fields: dict[str, str], is_kept: bool
) -> None:
    assert ("logprobs" in str(table_of(form(**fields)))) == is_kept


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"image": ""}, "image"),
        ({"q0.ask": " "}, "q0.ask"),
        ({"q0.kind": "choices"}, "q0.choices"),
        ({"q0.kind": "schema", "q0.schema": "{,"}, "q0.schema"),
        ({"max_tokens": "many"}, "max_tokens"),
    ],
)
def test_what_is_missing_is_said_beside_its_field(fields: dict[str, str], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        table_of(form(**fields))
    assert field_of(caught.value.param) == field


@pytest.mark.parametrize(
    ("param", "field"),
    [
        ("table.questions[2].schema.properties", "q2.schema"),
        ("table.questions[0].choices[1]", "q0.choices"),
        ("table.questions", "q0.ask"),
        ("table.image_columns", "image"),
        ("table.image_columns[1]", "image_2"),
        ("table.id_column", "id_column"),
        ("table.body.temperature", "temperature"),
        ("table.body.logprobs", "sure"),
        ("table.system", "system"),
        ("completion_window", "window"),
        ("metadata.name", "name"),
        ("near_duplicates.distance", "near"),
        ("input_file_id", ""),
        (None, ""),
    ],
)
def test_each_field_of_the_api_has_its_field_here(param: str | None, field: str) -> None:
    assert field_of(param) == field


def test_questions_come_and_go_but_for_the_last() -> None:
    one = form()
    two = change_questions(one, "add")
    assert [question.name for question in two.questions] == ["colour", "answer_2"]
    assert change_questions(two, "remove:0").questions == [QuestionFields("answer_2")]
    assert change_questions(one, "remove:0").questions == one.questions
    assert change_questions(one, "nonsense").questions == one.questions
    assert change_questions(two, f"remove:{'9' * 5000}").questions == two.questions


def test_more_is_open_where_something_in_it_counts() -> None:
    assert not opens_more(form(), {})
    assert opens_more(form(strict="on"), {})
    assert opens_more(form(), {"window": "Too long."})


@given(st.text())
@example('[[Infinity, "colour", null, null]]')
def test_whatever_a_hidden_field_holds_is_a_preview_or_none(text: str) -> None:
    read_asked(text)


@given(st.lists(st.builds(Asked, st.integers(1, 9), st.text(), st.none() | st.just("job_1"), st.none())))
def test_a_preview_is_read_as_it_was_written(asked: list[Asked]) -> None:
    assert read_asked(asked_as_text(asked)) == asked


def test_a_preview_shows_a_row_for_each_row_with_the_picture_that_is_there() -> None:
    asked = [Asked(1, "a", "job_1"), Asked(1, "b", "job_2"), Asked(2, "a", error="No image.")]
    answered = {
        "job_1": Answered(1, JobState.COMPLETED, "red", None, None, None),
        "job_2": Answered(2, JobState.QUEUED, None, None, None, "f" * 64),
    }
    view = preview_view(asked, answered, lambda content_hash: f"/{content_hash[0]}")
    assert view is not None
    assert [[one.state for one in row.answers] for row in view.rows] == [["completed", "queued"], ["refused"]]
    assert ([row.picture for row in view.rows], view.waits, view.ended) == (["/f", None], True, 2)


@pytest.mark.parametrize("before", ["data:image/png;base64,", " DATA:image/jpeg;name=a;base64,"])
def test_an_image_inside_a_cell_is_shown_by_its_size(before: str) -> None:
    inside = before + base64.b64encode(bytes(300)).decode()
    assert cell_view(inside) == cell_view(bytes(300)) == CellView(bytes=300)
    assert cell_view("https://shop.example/data:1;base64,") == CellView("https://shop.example/data:1;base64,")
