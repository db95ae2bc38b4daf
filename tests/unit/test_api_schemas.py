"""Bodies that clients send, and what is said about wrong ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from app.batches import Wish, hash_wish
from app.routes.bodies import documented
from app.routes.errors import explain_body
from app.schemas import BatchCreate, JobCreate
from app.states import Priority
from app.windows import window_seconds


def complaint(model: type[BaseModel], body: str) -> tuple[str, str | None, str | None]:
    with pytest.raises(ValidationError) as found:
        model.model_validate_json(body)
    error = explain_body(found.value)
    return error.message, error.param, error.code


@pytest.mark.parametrize(
    ("window", "seconds"), [("24h", 86_400), ("1s", 1), ("90m", 5400), ("30d", 2_592_000)]
)
def test_windows(window: str, seconds: int) -> None:
    assert window_seconds(window) == seconds


@pytest.mark.parametrize(
    "window",
    ["", "24", "h", "0h", "024h", "-1h", "24H", "24 h", "31d", "721h", "24h\n", "٢h", "9" * 5000 + "s"],
)
def test_what_is_no_window(window: str) -> None:
    with pytest.raises(ValueError, match="must be a time"):
        window_seconds(window)


def test_a_missing_parameter_is_named() -> None:
    assert complaint(JobCreate, "{}") == (
        "Missing required parameter: 'question'.",
        "question",
        "missing_parameter",
    )


def test_an_unknown_parameter_is_named() -> None:
    body = '{"question": "Why?", "colour": 1}'
    assert complaint(JobCreate, body) == ("Unknown parameter: 'colour'.", "colour", "unknown_parameter")


def test_a_nested_parameter_is_named_by_its_way() -> None:
    body = '{"question": "Why?", "images": ["a", 5]}'
    assert complaint(JobCreate, body)[1:] == ("images[1]", "invalid_value")


def test_a_wish_that_is_misspelt_is_refused() -> None:
    given = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    for wish in ("on", "off"):
        BatchCreate.model_validate(given | {"metadata": {"vqueue_near_duplicates": wish, "mine": "true"}})
    body = json.dumps(given | {"metadata": {"vqueue_near_duplicates": "true"}})
    message, param, code = complaint(BatchCreate, body)
    assert message == "Invalid 'metadata': vqueue_near_duplicates must be 'on' or 'off', not 'true'"
    assert (param, code) == ("metadata", "invalid_value")


def test_a_broken_body_is_told_so() -> None:
    assert complaint(BatchCreate, "{")[2] == "invalid_json"


@pytest.mark.parametrize("model", [BatchCreate, JobCreate])
def test_the_documentation_of_a_body_stands_alone(model: type[BaseModel]) -> None:
    assert "$ref" not in str(documented(model))


WISHES = st.builds(
    Wish,
    input_file_id=st.sampled_from(["file-1", "file-2"]),
    endpoint=st.just("/v1/chat/completions"),
    completion_window=st.just("24h"),
    window_s=st.just(86_400),
    metadata=st.none() | st.dictionaries(st.text(max_size=1), st.text(max_size=1), max_size=2),
    output_expires_after_s=st.none() | st.just(3600),
    priority=st.sampled_from([Priority.STANDARD, Priority.BACKGROUND]),
)


@given(WISHES, WISHES)
def test_wishes_have_one_hash_if_they_say_the_same(one: Wish, other: Wish) -> None:
    same = {**vars(one), "metadata": one.metadata or {}} == {**vars(other), "metadata": other.metadata or {}}
    assert (hash_wish(one) == hash_wish(other)) == same
