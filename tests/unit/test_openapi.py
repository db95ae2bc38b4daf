"""What the API says of itself: a name for every operation, examples that hold, errors with their shape."""

from functools import lru_cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.config import Settings
from app.main import build_app, wire
from app.routes.openapi import operations


@lru_cache
def document() -> dict[str, Any]:
    services = wire(Settings())
    found = build_app(services).openapi()
    services.close()
    return found


def names() -> list[str]:
    return [operation["operationId"] for _, _, operation in operations(document())]


def of(name: str) -> dict[str, Any]:
    return next(operation for _, _, operation in operations(document()) if operation["operationId"] == name)


def json_of(holder: dict[str, Any]) -> dict[str, Any] | None:
    return holder.get("content", {}).get("application/json")


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    whole = {**schema, "components": document()["components"]}
    return [error.message for error in Draft202012Validator(whole).iter_errors(value)]


def test_every_operation_has_a_name_of_its_own() -> None:
    assert len(set(names())) == len(names())
    assert {"files_upload", "batches_create", "jobs_read", "models_list"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_every_operation_says_what_it_is_for_and_under_which_heading(name: str) -> None:
    headings = {tag["name"] for tag in document()["tags"]}
    assert of(name).get("description")
    assert set(of(name)["tags"]) <= headings


@pytest.mark.parametrize("name", names())
def test_examples_of_requests_hold(name: str) -> None:
    body = json_of(of(name).get("requestBody", {}))
    for example in (body or {}).get("examples", {}).values():
        assert problems(body["schema"] if body else {}, example["value"]) == []
    assert body is None or body["examples"]


@pytest.mark.parametrize("name", names())
def test_examples_of_answers_hold(name: str) -> None:
    answers = [json_of(found) for status, found in of(name)["responses"].items() if status[0] == "2"]
    for answer in filter(None, answers):
        assert problems(answer["schema"], answer["example"]) == []


@pytest.mark.parametrize("name", [name for name in names() if not name.startswith("health_")])
def test_every_error_has_its_shape(name: str) -> None:
    errors = {status: json_of(found) for status, found in of(name)["responses"].items() if status >= "400"}
    assert {"400", "401", "429", "500"} <= set(errors)
    for error in errors.values():
        assert error is not None
        assert error["schema"] == {"$ref": "#/components/schemas/Error"}
