"""What clients are told about errors of any kind."""

import json

import pytest
from psycopg2 import OperationalError as Psycopg2Error
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from app.errors import Conflict, FatalWork, Overloaded, RequestError, TransientWork, Unauthorized
from app.objects import ObjectMissing
from app.routes.errors import as_request_error, explain, explain_body, render
from app.schemas import BatchRetry


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("No."), 400),
        (Conflict("No."), 409),
        (HTTPException(404), 404),
        (HTTPException(405), 405),
        (HTTPException(418), 400),
        (ObjectMissing("bucket", "key"), 404),
        (TransientWork("object_store_unavailable", "away"), 503),
        (PoolTimeout(), 503),
        (OperationalError("SELECT 1", {}, Psycopg2Error("refused")), 503),
        (ProgrammingError("SELEC 1", {}, Exception("syntax")), 500),
        (FatalWork("object_store_refused", "credentials"), 500),
        (ZeroDivisionError("by zero"), 500),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    assert as_request_error(error).status == status


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("SECRET"),
        FatalWork("x", "SECRET"),
        ProgrammingError("SECRET", {}, Exception("SECRET")),
    ],
)
def test_our_own_faults_are_not_told(error: Exception) -> None:
    assert b"SECRET" not in render(as_request_error(error)).body


def test_an_error_is_openais_json() -> None:
    response = render(RequestError("No.", code="some_code", param="field"))
    assert json.loads(bytes(response.body)) == {
        "error": {"message": "No.", "type": "invalid_request_error", "param": "field", "code": "some_code"}
    }


def test_an_unknown_url_is_named_with_its_method() -> None:
    error = as_request_error(HTTPException(404), asked="POST /v1/odd")
    assert error.message == "Unknown request URL: POST /v1/odd."


def test_the_sdk_is_told_not_to_repeat_a_conflict() -> None:
    assert render(Conflict("No.")).headers["x-should-retry"] == "false"


def test_the_client_is_told_when_to_come_back() -> None:
    assert render(Overloaded("Later.", retry_after_s=30)).headers["retry-after"] == "30"


def test_a_stranger_is_told_how_to_come_in() -> None:
    assert render(Unauthorized("Who?")).headers["www-authenticate"] == "Bearer"


def test_headers_of_the_framework_are_kept() -> None:
    assert render(RequestError("No."), {"Allow": "GET"}).headers["allow"] == "GET"


def test_a_text_that_is_too_long_is_told_in_characters() -> None:
    with pytest.raises(ValidationError) as caught:
        BatchRetry.model_validate({"metadata": {"a": "x" * 513}})
    error = explain_body(caught.value)
    told = "Invalid 'metadata.a': Value should have at most 512 characters"
    assert (error.message, error.param) == (told, "metadata.a")


def test_a_part_of_a_list_is_named_by_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        BatchRetry.model_validate({"states": ["failed", "lost"]})
    assert explain_body(caught.value).param == "states[1]"


def test_a_list_that_is_too_long_is_told_by_its_bound() -> None:
    complaint = "Dictionary should have at most 16 items after validation, not more"
    error = explain([{"type": "too_long", "loc": ("metadata",), "msg": complaint}])
    assert error.message == "Invalid 'metadata': Dictionary should have at most 16 items"
