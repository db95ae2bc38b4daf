"""A request in OpenAI's words, and what a server's words mean."""

import base64
import io
import json
from dataclasses import replace

import numpy as np
import PIL.Image
import pytest

from app.errors import FatalWork, InvalidWork, TransientWork, WorkError
from tests.requests import ask, picture
from workers.engine.base import (
    Choice,
    JsonObject,
    JsonSchema,
    Note,
    Request,
    Sampling,
    TextPart,
    TokenLogprob,
    Turn,
)
from workers.engine.openai_wire import (
    Dialect,
    body,
    data_url,
    dialect,
    events,
    model_entry,
    read_reply,
    refusal,
)

URLS = {0: "data:first", 1: "data:second"}


def said(request: Request, speaks: Dialect = Dialect.VLLM) -> dict[str, object]:
    return body(request, URLS, model="m", speaks=speaks)


def reply(text: str = "red", reason: str = "stop", **more: object) -> dict[str, object]:
    return {"choices": [{"message": {"content": text}, "finish_reason": reason, **more}], "usage": {}}


def test_turns_and_images_keep_their_order() -> None:
    before = (Turn("user", (TextPart("hi"),)), Turn("assistant", (TextPart("ho"),)))
    request = ask(picture(1), "which?", picture(2), system="brief", before=before)
    assert said(request)["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "ho"}]},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:first"}},
                {"type": "text", "text": "which?"},
                {"type": "image_url", "image_url": {"url": "data:second"}},
            ],
        },
    ]


def test_a_server_is_told_only_what_was_asked_for() -> None:
    plain = set(said(ask("who?"), Dialect.PLAIN))
    assert plain == {"model", "messages", "max_tokens", "temperature", "top_p"}
    sampling = Sampling(5, temperature=1, top_k=4, seed=3, stop=("a", ""), repetition_penalty=1.1, logprobs=2)
    asked = said(ask("who?", sampling=sampling), Dialect.PLAIN)
    assert {name: asked[name] for name in set(asked) - plain} == {
        "seed": 3,
        "stop": ["a"],
        "top_k": 4,
        "repetition_penalty": 1.1,
        "logprobs": True,
        "top_logprobs": 2,
    }


def test_only_vllm_gets_a_salt_and_tenants_have_their_own() -> None:
    one, other = (said(ask("who?", tenant=tenant))["cache_salt"] for tenant in ("a", "b"))
    assert one != other
    assert "cache_salt" not in said(ask("who?"), Dialect.SGLANG)


def test_constraints_are_said_in_the_server_s_way() -> None:
    def held(constraint: JsonObject | JsonSchema | Choice, speaks: Dialect) -> dict[str, object]:
        return said(replace(ask("who?"), constraint=constraint), speaks)

    choice = Choice(("a.b", "c"))
    assert held(JsonObject(), Dialect.PLAIN)["response_format"] == {"type": "json_object"}
    schema = held(JsonSchema('{"type": "object"}'), Dialect.PLAIN)["response_format"]
    assert schema == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
    }
    assert held(choice, Dialect.VLLM)["structured_outputs"] == {"choice": ["a.b", "c"]}
    assert held(choice, Dialect.SGLANG)["regex"] == r"(a\.b|c)"
    with pytest.raises(InvalidWork, match="constraint_unsupported"):
        held(choice, Dialect.PLAIN)


@pytest.mark.parametrize(
    ("owner", "speaks"), [("vllm", Dialect.VLLM), ("sglang", Dialect.SGLANG), ("me", Dialect.PLAIN)]
)
def test_a_server_is_known_by_its_model_s_owner(owner: str, speaks: Dialect) -> None:
    assert dialect(owner) is speaks


def test_a_picture_loses_nothing_on_the_way() -> None:
    pixels = picture(1, 33, 21).load()
    _, _, encoded = data_url(PIL.Image.fromarray(pixels)).partition("base64,")
    assert np.array_equal(np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(encoded)))), pixels)


@pytest.mark.parametrize(
    ("status", "text", "kind", "code"),
    [
        (429, "slow down", TransientWork, "server_busy"),
        (500, "oops", TransientWork, "server_busy"),
        (503, "", TransientWork, "server_busy"),
        (599, "", TransientWork, "server_busy"),
        (401, "no key", FatalWork, "server_refused"),
        (404, "no such model", FatalWork, "server_refused"),
        (400, "This model's maximum context length is 4096 tokens", InvalidWork, "context_length_exceeded"),
        (400, "prompt is longer than the maximum model length", InvalidWork, "context_length_exceeded"),
        (413, "Input length (9) exceeds", InvalidWork, "context_length_exceeded"),
        (400, "bad schema", InvalidWork, "invalid_request"),
        (422, "bad field", InvalidWork, "invalid_request"),
    ],
)  # fmt: skip
def test_a_refusal_is_the_job_s_the_world_s_or_ours(
    status: int, text: str, kind: type[WorkError], code: str
) -> None:
    error = refusal(status, json.dumps({"error": {"message": text}}))
    assert type(error) is kind
    assert error.code == code
    assert text in error.message


@pytest.mark.parametrize(
    "text",
    ['{"error": {"message": "why"}}', '{"message": "why"}', '{"error": "why"}', '{"detail": "why"}', "why"],
)
def test_a_server_s_words_are_found_in_any_form(text: str) -> None:
    assert "why" in refusal(400, text).message


def test_a_busy_server_says_when_to_come_back() -> None:
    error = refusal(429, "", retry_after_s=7)
    assert isinstance(error, TransientWork)
    assert error.retry_after_s == 7


def test_a_reply_becomes_an_answer() -> None:
    counts = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    answer = read_reply(ask("who?"), {**reply(), "usage": counts})
    assert (answer.text, answer.finish_reason) == ("red", "stop")
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (9, 2, 4)


def test_logprobs_are_read_token_by_token() -> None:
    token = {"token": "red", "logprob": -0.5, "top_logprobs": [{"token": "red", "logprob": -0.5}]}
    asked = ask("who?", sampling=Sampling(4, logprobs=1))
    answer = read_reply(asked, reply(logprobs={"content": [token]}))
    assert answer.logprobs == (TokenLogprob("red", -0.5, (("red", -0.5),)),)


def test_notes_tell_of_circles_and_of_nothing_said() -> None:
    assert read_reply(ask("who?"), reply(" ")).notes == (Note.EMPTY,)
    assert read_reply(ask("who?"), reply("ab" * 40, "length")).notes == (Note.REPETITION,)
    assert read_reply(ask("who?"), reply("ab" * 40)).notes == ()


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ({}, FatalWork),
        ({"choices": []}, FatalWork),
        ({"choices": [{"finish_reason": "stop"}]}, FatalWork),
        (reply(reason="abort"), TransientWork),
        (reply(reason="content_filter"), InvalidWork),
    ],
)
def test_a_reply_that_is_no_answer_is_an_error(broken: dict[str, object], kind: type[WorkError]) -> None:
    with pytest.raises(kind):
        read_reply(ask("who?"), broken)


def test_a_stream_has_data_and_other_lines() -> None:
    lines = ['data: {"a": 1}', "", ": ping", "data: [DONE]"]
    assert [events(line) for line in lines] == [{"a": 1}, None, None, None]


def test_a_model_that_the_server_has_not_is_named_beside_those_it_has() -> None:
    listing = {"data": [{"id": "a"}, {"id": "b"}]}
    assert model_entry(listing, "b") == {"id": "b"}
    with pytest.raises(FatalWork, match=r"model_not_found: .*'c'.*a, b"):
        model_entry(listing, "c")
