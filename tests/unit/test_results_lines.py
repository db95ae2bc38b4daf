"""An ended job becomes one line of the output or the error file, as OpenAI's contract wants it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.chat_completion import ChoiceLogprobs

from app.results import AnsweredJob, UnansweredJob, error_line, output_line
from app.states import Endpoint, JobState

ANSWERED = AnsweredJob(
    id=255,
    line=1,
    custom_id="r1",
    model="demo",
    finished_at=datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC),
    text="A red mug.",
    finish_reason="stop",
    prompt_tokens=40,
    cached_tokens=32,
    completion_tokens=5,
    revision="abc123",
)
FAILED = UnansweredJob(
    id=255,
    line=1,
    custom_id="r1",
    state=JobState.FAILED,
    error_code="not_an_image",
    error_message="It is HTML.",
    error_param="body.messages[0].content[0].image_url.url",
)


def chat_line(job: AnsweredJob) -> bytes:
    return output_line(job, Endpoint.CHAT)


def read(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    return json.loads(line)


def test_an_answer_is_a_chat_completion() -> None:
    row = read(chat_line(ANSWERED))
    assert (row["id"], row["custom_id"], row["error"]) == ("batch_req_00000000000000ff", "r1", None)
    assert (row["response"]["status_code"], row["response"]["request_id"]) == (200, "req_00000000000000ff")
    assert row["response"]["body"] == {
        "id": "chatcmpl-00000000000000ff",
        "object": "chat.completion",
        "created": 1767323045,
        "model": "demo",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "A red mug.", "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 40,
            "completion_tokens": 5,
            "total_tokens": 45,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
        "system_fingerprint": "abc123",
    }


def test_log_probabilities_have_openai_s_shape() -> None:
    stored = [("é", -0.25, [("é", -0.25), ("\ufffd", -1.5)])]
    choice = read(chat_line(replace(ANSWERED, logprobs=stored)))["response"]["body"]["choices"][0]
    assert ChoiceLogprobs.model_validate(choice["logprobs"]).content
    assert choice["logprobs"]["content"] == [
        {
            "token": "é",
            "logprob": -0.25,
            "bytes": [195, 169],
            "top_logprobs": [
                {"token": "é", "logprob": -0.25, "bytes": [195, 169]},
                {"token": "\ufffd", "logprob": -1.5, "bytes": None},
            ],
        }
    ]


def test_notes_are_in_the_body_where_there_are_some() -> None:
    body = read(chat_line(replace(ANSWERED, notes=["repetition"])))["response"]["body"]
    assert body["vqueue"] == {"notes": ["repetition"]}
    assert "vqueue" not in read(chat_line(replace(ANSWERED, notes=[])))["response"]["body"]


def test_a_cut_answer_says_length() -> None:
    body = read(chat_line(replace(ANSWERED, text='{"a', finish_reason="length")))["response"]["body"]
    assert body["choices"][0]["finish_reason"] == "length"


def test_a_bad_request_has_the_response_it_would_have_had() -> None:
    row = read(error_line(FAILED))
    assert (row["custom_id"], row["error"], row["response"]["status_code"]) == ("r1", None, 400)
    assert row["response"]["body"]["error"] == {
        "message": "It is HTML.",
        "type": "invalid_request_error",
        "param": "body.messages[0].content[0].image_url.url",
        "code": "not_an_image",
    }


@pytest.mark.parametrize("code", ["engine_crash", "job_timeout", "internal_error"])
def test_a_fault_of_ours_is_a_server_error(code: str) -> None:
    response = read(error_line(replace(FAILED, error_code=code, error_param=None)))["response"]
    assert (response["status_code"], response["body"]["error"]["type"]) == (500, "server_error")


@pytest.mark.parametrize(
    ("state", "code"), [(JobState.EXPIRED, "batch_expired"), (JobState.CANCELLED, "batch_cancelled")]
)
def test_a_job_that_never_ran_has_no_response(state: JobState, code: str) -> None:
    row = read(error_line(replace(FAILED, state=state, error_code=None, error_message=None)))
    assert (row["response"], row["error"]["code"]) == (None, code)
    assert row["error"]["message"]


def test_a_job_of_a_stopped_batch_has_no_response() -> None:
    row = read(error_line(replace(FAILED, error_code="batch_failed", error_message=None)))
    assert (row["response"], row["error"]["code"]) == (None, "batch_failed")


def test_a_line_without_a_custom_id_says_null() -> None:
    assert read(error_line(replace(FAILED, custom_id=None)))["custom_id"] is None


@pytest.mark.parametrize(
    "text", ["+1+cmd|' /C calc'!A0", "a\nb\r\x85\u2028\u2029\x1c\x0c", "é🧥", "\x1b[31m", ""]
)
def test_any_answer_comes_back_unchanged_in_one_line(text: str) -> None:
    line = chat_line(replace(ANSWERED, text=text, custom_id=text))
    assert len(line.decode().splitlines()) == 1
    row = read(line)
    assert row["custom_id"] == text
    assert row["response"]["body"]["choices"][0]["message"]["content"] == text


@given(text=st.text(st.sampled_from('a"\\\n\u2028é/u0085\x85'), max_size=20))
def test_every_text_survives_the_escapes(text: str) -> None:
    row = read(chat_line(replace(ANSWERED, text=text)))
    assert row["response"]["body"]["choices"][0]["message"]["content"] == text
