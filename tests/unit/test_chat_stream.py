"""The events of a streamed answer say what its completion says."""

import json
from datetime import UTC, datetime
from typing import Any

from app.chat_stream import DONE, Chunks, error_event
from app.errors import TooLate
from app.results import AnsweredJob, completion

ANSWER = AnsweredJob(7, 0, "", "demo", datetime(2026, 1, 1, tzinfo=UTC), "red", "stop", 5, 2, 3, "r1")


def read(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    return json.loads(event.removeprefix(b"data: "))


def test_the_end_tells_what_the_completion_tells() -> None:
    *events, done = Chunks(7, "demo", 1, include_usage=True).end(ANSWER)
    last, usage = map(read, events)
    whole = completion(ANSWER)
    assert done == DONE
    assert last["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert {name: last[name] for name in ("id", "model", "system_fingerprint")} == {
        name: whole[name] for name in ("id", "model", "system_fingerprint")
    }
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])


def test_without_being_asked_no_chunk_speaks_of_usage() -> None:
    chunks = Chunks(7, "demo", 1, include_usage=False)
    events = [chunks.role(), chunks.text("red"), *list(chunks.end(ANSWER))[:-1]]
    assert not any("usage" in read(event) for event in events)


def test_text_of_any_kind_stays_on_one_line() -> None:
    event = Chunks(7, "demo", 1, include_usage=False).text("a\nb\u2028c\x85")
    assert len(event.decode().splitlines()) == 2
    assert read(event)["choices"][0]["delta"]["content"] == "a\nb\u2028c\x85"


def test_an_error_is_told_as_in_a_body() -> None:
    error = read(error_event(TooLate("No time.", code="job_expired")))["error"]
    assert error == {"message": "No time.", "type": "server_error", "param": None, "code": "job_expired"}
