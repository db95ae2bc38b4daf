"""Reasoning before an answer: told apart from it wherever an engine or a server gives it."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.results import AnsweredJob, completion, response
from app.store.jobs import ClaimedJob
from workers.answers import answer_row
from workers.engine.base import Answer, Note, Request, Sampling, Usage
from workers.engine.openai_wire import read_reply
from workers.reasoning import AnswerOnly, split_reasoning

PIECES = st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "ink>", " ", "\n", "Red", "</"]))


def job() -> ClaimedJob:
    return ClaimedJob(7, 2, 1, "tenant_a", "batch_1", "demo", {"turns": []}, {}, [], 0.5)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>maybe red?</think>\n\nRed", "maybe red?", "Red"),
        ("\n<think>\n</think>Red ", "", "Red "),
        ("<think>maybe red? or maybe", "maybe red? or maybe", ""),
        ("The sign reads </think> in red.", None, "The sign reads </think> in red."),
        ("It says <think>a</think>", None, "It says <think>a</think>"),
        ("<think>a</think>b</think>c", "a", "b</think>c"),
        (" Red", None, " Red"),
        ("", None, ""),
    ],
)
def test_reasoning_is_what_is_marked_at_the_beginning(text: str, reasoning: str | None, answer: str) -> None:
    assert split_reasoning(text) == (reasoning, answer)


@given(PIECES)
def test_live_text_is_a_beginning_of_the_answer(pieces: list[str]) -> None:
    told: list[str] = []
    listener = AnswerOnly(told.append)
    for piece in pieces:
        listener(piece)
        so_far = "".join(told)
        assert split_reasoning("".join(pieces))[1].startswith(so_far)
    whole = split_reasoning("".join(pieces))[1]
    assert "".join(told) == whole or not told


def test_live_text_comes_at_once_where_nothing_is_reasoned() -> None:
    told: list[str] = []
    listener = AnswerOnly(told.append)
    for piece in ("Re", "d <think>"):
        listener(piece)
    assert told == ["Re", "d <think>"]


def test_reasoning_is_stored_beside_the_answer() -> None:
    row = answer_row(job(), Answer("<think>hm\0</think>\n\nRed", "stop", Usage(5, 4)))
    assert (row.text, row.reasoning, row.notes) == ("Red", "hm\ufffd", ())


def test_reasoning_that_was_cut_off_leaves_no_answer() -> None:
    row = answer_row(job(), Answer("<think>maybe", "length", Usage(5, 4), notes=(Note.REPETITION,)))
    assert (row.text, row.reasoning) == ("", "maybe")
    assert row.notes == ("repetition", "empty")


def test_clients_get_reasoning_beside_the_answer() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    told = AnsweredJob(1, 1, "a", "m", moment, "Red", "stop", 5, 0, 4, "r", reasoning="hm")
    assert completion(told)["choices"][0]["message"]["reasoning_content"] == "hm"
    assert [item["type"] for item in response(told)["output"]] == ["reasoning", "message"]
    plain = AnsweredJob(1, 1, "a", "m", moment, "Red", "stop", 5, 0, 4, "r")
    assert "reasoning" not in json.dumps([completion(plain)["choices"], response(plain)["output"]])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize(("content", "text"), [("Red", "<think>hm</think>\n\nRed"), (None, "<think>hm")])
def test_a_server_that_tells_reasoning_apart_is_read(name: str, content: str | None, text: str) -> None:
    request = Request("1", "t", (), (), Sampling(4))
    choice = {"message": {"content": content, name: "hm"}, "finish_reason": "stop"}
    assert read_reply(request, {"choices": [choice]}).text == text
