"""What an answer says as labels: under a choice list, under a schema, and whatever a model may write."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.errors import RequestError
from app.labels import (
    MOST_FIELD_CHARS,
    MOST_LABELS,
    MOST_RIGHT,
    MOST_VALUE_CHARS,
    Label,
    read_labels,
    right_label,
    spell,
)

CHOICE = {"choice": ["yes", "no", "true"]}
PROPERTIES = {
    "colour": {"enum": ["red", "blue"]},
    "count": {"type": "integer"},
    "safe": {"type": ["boolean", "null"]},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    "free": {},
    "share": {"type": "number"},
    "step": {"enum": [1, 2.0, {"a": 1}, [[1]]]},
    "rows": {"type": "array"},
}
SCHEMA = {"json_schema": json.dumps({"type": "object", "properties": PROPERTIES})}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
CONSTRAINTS = st.sampled_from([None, {}, CHOICE, SCHEMA, {"json_object": True}])


def labels(constraint: dict[str, Any] | None, text: str) -> dict[tuple[str, int], str]:
    return {(label.field, label.place): label.value for label in read_labels(constraint, text)}


def said(answer: Any) -> dict[tuple[str, int], str]:
    return labels(SCHEMA, json.dumps(answer))


def test_a_choice_is_a_label() -> None:
    assert read_labels(CHOICE, "yes") == [Label("", 0, "yes")]
    assert labels(CHOICE, "\nno ") == {("", 0): "no"}, "as a model that reasons may leave it"


@pytest.mark.parametrize("text", ["", "ye", "maybe", "YES", "yes no"])
def test_what_is_none_of_the_choices_is_no_label(text: str) -> None:
    assert read_labels(CHOICE, text) == []


def test_top_level_scalars_are_labels_in_the_spelling_of_json() -> None:
    answer = {"colour": "red", "count": 3, "ratio": 0.5, "whole": 4.0, "safe": True, "size": None}
    assert {field: value for (field, _), value in said(answer).items()} == {
        "colour": "red",
        "count": "3",
        "ratio": "0.5",
        "whole": "4",
        "safe": "true",
        "size": "null",
    }


def test_a_list_of_scalars_has_a_label_for_each_and_an_empty_one_says_so() -> None:
    assert said({"tags": ["a", "b", "a", 3]}) == {("tags", 0): "a", ("tags", 1): "b", ("tags", 2): "3"}
    assert said({"tags": []}) == {("tags", 0): "[]"}


def test_a_schema_of_a_scalar_labels_the_answer_as_a_whole() -> None:
    assert said("red") == {("", 0): "red"}
    assert said(True) == {("", 0): "true"}


def test_objects_inside_and_long_texts_are_left_out() -> None:
    long = "x" * (MOST_VALUE_CHARS + 1)
    assert said({"inner": {"a": 1}, "story": long, "rows": [{"a": 1}], "colour": "red"}) == {
        ("colour", 0): "red"
    }
    assert said({"f" * (MOST_FIELD_CHARS + 1): 1, "": 1}) == {}


@pytest.mark.parametrize("text", ['{"colour": "re', "", "NaN", '{"a": Infinity}', "[" * 100_000, "1" * 5_000])
def test_an_answer_that_is_no_json_has_no_labels(text: str) -> None:
    assert read_labels(SCHEMA, text) == []


@pytest.mark.parametrize("constraint", [None, {}, {"json_object": True}])
def test_without_choices_or_a_schema_there_are_no_labels(constraint: dict[str, Any] | None) -> None:
    assert read_labels(constraint, '{"colour": "red"}') == []


@given(CONSTRAINTS, st.text() | JSON.map(json.dumps))
@example(SCHEMA, r'{"a": "\ud800", "\udfff": 1, "b": "\u0000", "\u0000": 2}')
@example(SCHEMA, json.dumps({f"f{number}": number for number in range(MOST_LABELS + 1)}))
def test_whatever_a_model_writes_its_labels_can_be_stored(
    constraint: dict[str, Any] | None, text: str
) -> None:
    found = read_labels(constraint, text)
    assert len({(label.field, label.place) for label in found}) == len(found) <= MOST_LABELS
    for label in found:
        assert len(label.value) <= MOST_VALUE_CHARS
        assert "\0" not in label.field + label.value
        stored = (label.field + label.value).encode()
        assert stored.decode() == label.field + label.value


@given(st.lists(st.integers(), min_size=1, unique=True))
def test_the_places_of_a_list_count_from_nothing(numbers: list[int]) -> None:
    places = [place for _, place in said({"tags": numbers})]
    assert places == list(range(min(len(numbers), MOST_LABELS)))


@given(SCALARS)
def test_equal_values_are_spelled_alike(value: Any) -> None:
    spelled = spell(value)
    if spelled is not None and not isinstance(value, str):
        assert spell(json.loads(spelled)) == spelled
        assert json.loads(spelled) == value


@pytest.mark.parametrize(
    ("field", "given", "stored"),
    [
        ("colour", "blue", "blue"),
        ("count", 4, 4),
        ("count", "4", 4),
        ("safe", "true", True),
        ("safe", None, None),
        ("safe", "null", None),
        ("tags", ["b"], ["b"]),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", [], []),
        ("free", "true", "true"),
        ("unknown", 3, 3),
        ("count", 4.0, 4),
        ("share", "0.50", 0.5),
        ("share", 2.0, 2),
        ("step", 1.0, 1),
        ("step", 2, 2),
        ("rows", [1.0, "a", None], [1, "a", None]),
    ],
)
def test_a_right_label_is_kept_as_its_field_would_have_it(field: str, given: Any, stored: Any) -> None:
    label = right_label(SCHEMA, field, given, "the model's")
    assert (label, type(label)) == (stored, type(stored))


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("colour", "green"),
        ("colour", None),
        ("count", True),
        ("count", "four"),
        ("count", None),
        ("safe", 1),
        ("tags", ["c"]),
        ("tags", "a"),
        ("free", "x" * (MOST_VALUE_CHARS + 1)),
        ("count", 4.5),
        ("share", float("inf")),
        ("step", '{"a": 1}'),
        ("step", "[[1]]"),
        ("rows", "[[1]]"),
        ("rows", "[" * 450 + "]" * 450),
        ("rows", json.dumps([1] * (MOST_RIGHT + 1))),
    ],
)
def test_a_label_that_the_field_cannot_have_is_refused(field: str, given: Any) -> None:
    with pytest.raises(RequestError, match="The label must be") as refused:
        right_label(SCHEMA, field, given, "the model's")
    assert (refused.value.param, refused.value.code) == ("label", "invalid_label")


def test_a_refusal_names_what_may_stand_there() -> None:
    with pytest.raises(RequestError, match='one of "red", "blue", not "green"'):
        right_label(SCHEMA, "colour", "green", "red")
    with pytest.raises(RequestError, match="of type integer"):
        right_label(SCHEMA, "count", "many", 3)


def test_the_models_own_answer_is_confirmed_not_overturned() -> None:
    with pytest.raises(RequestError, match="confirm it") as refused:
        right_label(CHOICE, "", "yes", "yes")
    assert refused.value.code == "label_unchanged"
    assert right_label(SCHEMA, "free", 1, True) == 1


@pytest.mark.parametrize(
    ("field", "given", "answer"), [("share", 1.0, 1), ("share", 1, 1.0), ("rows", [1.0], [1])]
)
def test_a_number_is_the_same_however_it_is_spelled(field: str, given: Any, answer: Any) -> None:
    with pytest.raises(RequestError, match="confirm it"):
        right_label(SCHEMA, field, given, answer)
