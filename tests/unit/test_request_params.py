"""What was asked of an answer reaches the engine, and what the engine says of it reaches the row."""

import pytest

from app.config import Settings
from app.errors import FatalWork
from app.store.jobs import ClaimedJob, Json
from workers.answers import answer_row
from workers.engine.base import (
    Answer,
    Choice,
    Constraint,
    JsonObject,
    JsonSchema,
    Note,
    Request,
    Sampling,
    TokenLogprob,
    Usage,
)
from workers.requests import read_request


def claimed(**params: Json) -> ClaimedJob:
    return ClaimedJob(7, 2, 1, "tenant_a", "batch_1", "demo", {"turns": []}, params, [], 0.5)


def asked(**params: Json) -> Request:
    return read_request(claimed(**params), (), Settings())


def test_penalty_and_log_probabilities_are_asked_for() -> None:
    sampling = asked(max_tokens=5, repetition_penalty=1.2, logprobs=0).sampling
    assert sampling == Sampling(5, repetition_penalty=1.2, logprobs=0)


@pytest.mark.parametrize(
    ("stored", "constraint"),
    [
        ({"json_object": True}, JsonObject()),
        ({"json_schema": '{"type":"object"}'}, JsonSchema('{"type":"object"}')),
        ({"choice": ["yes", "no"]}, Choice(("yes", "no"))),
    ],
)
def test_a_form_is_asked_for(stored: Json, constraint: Constraint) -> None:
    assert asked(constraint=stored).constraint == constraint


def test_without_a_form_the_answer_is_free() -> None:
    assert asked().constraint is None


@pytest.mark.parametrize("stored", [{"regex": "a*"}, {"json_schema": {}}, "json", {}])
def test_a_form_that_ingest_never_writes_is_our_own_fault(stored: Json) -> None:
    with pytest.raises(FatalWork, match="bad_prompt"):
        asked(constraint=stored)


def test_log_probabilities_and_notes_are_stored_as_postgres_can_hold_them() -> None:
    logprobs = (TokenLogprob("a\0", -0.123456789, (("\ud83d", float("-inf")),)),)
    row = answer_row(claimed(), Answer("a\0", "length", Usage(5, 1, 2), logprobs, (Note.REPETITION,)))
    assert (row.job_id, row.attempt, row.text, row.finish_reason) == (7, 2, "a\ufffd", "length")
    assert row.logprobs == [("a\ufffd", -0.123457, [("\ufffd", -9999.0)])]
    assert row.notes == ("repetition",)


def test_an_answer_without_log_probabilities_has_none() -> None:
    row = answer_row(claimed(), Answer("a", "stop", Usage(5, 1)))
    assert (row.logprobs, row.notes) == (None, ())
