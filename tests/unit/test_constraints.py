"""What an answer may be held to is read in every spelling, and refused with field and remedy."""

import json
from typing import Any

import pytest

from app.constraints import MOST_CHOICES, MOST_SCHEMA_BYTES, read_constraint, schema_problem
from app.errors import RequestError
from app.grammars import MOST_OPTIONAL

SCHEMA = {"type": "object", "properties": {"why": {"type": "string"}, "a": {"type": "integer"}}}
TEXT = '{"type":"object","properties":{"why":{"type":"string"},"a":{"type":"integer"}}}'


def optional(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(count)}}


def formatted(schema: Any, **more: Any) -> dict[str, Any]:
    named = {"name": "mug", "schema": schema, **more}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def refused(body: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_constraint(body)
    return caught.value


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None, "structured_outputs": None, "guided_choice": None}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (formatted(SCHEMA, strict=True, description="A mug."), {"json_schema": TEXT}),
        (formatted(SCHEMA, strict=False), {"json_schema": TEXT}),
        ({"structured_outputs": {"json": SCHEMA}}, {"json_schema": TEXT}),
        ({"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}}, {"json_schema": TEXT}),
        ({"structured_outputs": {"json_object": True}}, {"json_object": True}),
        ({"structured_outputs": {"choice": ["red", "é"]}}, {"choice": ["red", "é"]}),
        ({"guided_choice": ["red", "reddish"]}, {"choice": ["red", "reddish"]}),
    ],
)
def test_every_spelling_is_stored_as_one(body: dict[str, Any], stored: dict[str, Any] | None) -> None:
    assert read_constraint(body) == stored


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"response_format": "json"}, "response_format", "'json_object'"),
        ({"response_format": {"type": "xml"}}, "response_format", "'xml'"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", '"schema"'),
        (formatted(SCHEMA, colour=1), "response_format.json_schema", "'colour' is not known"),
        (formatted([SCHEMA]), "response_format.json_schema.schema", "must be a JSON object"),
        ({"structured_outputs": ["a"]}, "structured_outputs", "must be an object"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"json": SCHEMA, "choice": ["a"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a*"}}, "structured_outputs", "regex is not served"),
        ({"structured_outputs": {"jason": 1}}, "structured_outputs", "'jason' is not known"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "not JSON"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object", "true"),
        ({"guided_choice": []}, "guided_choice", "1 to 1000 texts"),
        ({"guided_choice": ["a"] * (MOST_CHOICES + 1)}, "guided_choice", "1 to 1000 texts"),
        ({"guided_choice": ["a", ""]}, "guided_choice", "not empty"),
        ({"guided_choice": ["a", 5]}, "guided_choice", "not empty"),
        ({"guided_choice": ["a" * 20_000, "b" * 20_000]}, "guided_choice", "40000 characters"),
        (formatted({"const": "\ud83d"}), "response_format.json_schema.schema", "surrogate"),
        (
            {"guided_choice": ["a"], "response_format": {"type": "json_object"}},
            "guided_choice",
            "response_format and guided_choice exclude each other",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_field(body: dict[str, Any], param: str, words: str) -> None:
    error = refused(body)
    assert (error.code, error.param) == ("invalid_request", param)
    assert words in str(error)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "uniqueItems": True}, '"uniqueItems" is not supported in a schema: leave it out'),
        ({"type": "strin"}, "Invalid type: strin"),
        ({"x-guidance": {"lenient": True}, "not": {}}, '"not" is not supported'),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 'use "anyOf"'),
        ({"$ref": "https://a.example/b.json"}, "only references inside the schema are served"),
        ({"$ref": "#"}, "nothing satisfies it"),
        ({"allOf": [{"$ref": "#"}]}, "nothing satisfies it"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            "nothing satisfies it",
        ),
        (optional(700), "700 properties side by side"),
        ({"type": "array", "items": optional(500)}, "500 properties side by side"),
        ({"anyOf": [optional(300), optional(300)]}, "600 properties side by side"),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}, optional(300)], "$defs": {"a": optional(300)}},
            "too much open at one place",
        ),
        ({"minimum": float("inf")}, "Out of range float values"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_feature(schema: Any, words: str) -> None:
    error = refused(formatted(schema))
    assert (error.code, error.param) == ("invalid_schema", "response_format.json_schema.schema")
    assert words in str(error)


def test_as_many_properties_may_be_left_out_as_can_be_followed() -> None:
    assert read_constraint(formatted(optional(MOST_OPTIONAL)))
    assert read_constraint(formatted({**optional(700), "required": [f"p{n}" for n in range(100, 700)]}))


def test_a_schema_that_is_too_large_names_both_sizes() -> None:
    error = refused(formatted({"description": "x" * MOST_SCHEMA_BYTES}))
    assert f"has {MOST_SCHEMA_BYTES + 18} bytes; the limit is {MOST_SCHEMA_BYTES}" in str(error)


def test_a_schema_of_many_lines_is_checked_once() -> None:
    schema_problem.cache_clear()
    for _ in range(3):
        read_constraint(formatted({"type": "boolean"}))
    assert schema_problem.cache_info().misses == 1
