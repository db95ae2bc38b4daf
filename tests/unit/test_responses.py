"""A line of the Responses API becomes the job that a chat completion would be, and its answer a Response."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from app.chat import ChatRequest, ChatRules, ModelRules
from app.lines import BadLine, LineRules, ParsedLine, parse_line
from app.messages import LOW_DETAIL_PIXELS
from app.references import RefKind
from app.results import AnsweredJob, output_line
from app.states import Endpoint

RULES = LineRules(
    endpoint=Endpoint.RESPONSES,
    chat=ChatRules(models={"demo": ModelRules("demo", 100, 64)}, images_per_job=2),
)
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
ANSWERED = AnsweredJob(
    id=255,
    line=1,
    custom_id="r1",
    model="demo",
    finished_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    text="A red mug.",
    finish_reason="stop",
    prompt_tokens=40,
    cached_tokens=32,
    completion_tokens=5,
    revision="abc123",
)


def line(**body: Any) -> bytes:
    asked = {"model": "demo", "input": "What is it?", **body}
    return json.dumps({"custom_id": "r1", "method": "POST", "url": "/v1/responses", "body": asked}).encode()


def request(**body: Any) -> ChatRequest:
    found = parse_line(line(**body), 1, RULES)
    assert isinstance(found, ParsedLine), found
    return found.request


def refused(**body: Any) -> tuple[str, str | None, str]:
    found = parse_line(line(**body), 1, RULES)
    assert isinstance(found, BadLine), found
    return found.error.code, found.error.param, found.error.message


def asking(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def image(**fields: Any) -> dict[str, Any]:
    return {"type": "input_image", **fields}


def answer(job: AnsweredJob) -> Response:
    body = json.loads(output_line(job, Endpoint.RESPONSES))["response"]["body"]
    return Response.model_validate(body, strict=True)


def test_a_text_is_what_the_user_says_and_instructions_come_before() -> None:
    assert request(instructions="Be short.").prompt["turns"] == [
        {"role": "system", "parts": [{"text": "Be short."}]},
        {"role": "user", "parts": [{"text": "What is it?"}]},
    ]


def test_an_image_stands_where_the_client_put_it() -> None:
    parts = [{"type": "input_text", "text": "Is"}, image(image_url=PIXEL), image(file_id="file-1a")]
    found = request(input=asking(*parts))
    assert found.prompt["turns"][0]["parts"] == [{"text": "Is"}, {"image": 0}, {"image": 1}]
    assert [one.kind for one in found.images] == [RefKind.DATA, RefKind.FILE]
    assert found.image_params == ("input[0].content[1].image_url", "input[0].content[2].file_id")


def test_earlier_answers_may_be_sent_back_as_they_came() -> None:
    earlier = answer(ANSWERED).output[0].model_dump()
    found = request(input=[earlier, {"type": "message", "role": "user", "content": "Sure?"}])
    assert found.prompt["turns"][0] == {"role": "assistant", "parts": [{"text": "A red mug."}]}


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ({"max_output_tokens": 5, "temperature": 0, "top_p": None}, {"max_tokens": 5, "temperature": 0.0}),
        ({"text": {"format": {"type": "text"}, "verbosity": "medium"}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"constraint": {"json_object": True}}),
        ({"guided_choice": ["yes", "no"]}, {"constraint": {"choice": ["yes", "no"]}}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": 0}),
        ({"top_logprobs": 3}, {"logprobs": 3}),
        ({"input": asking(image(image_url=PIXEL, detail="low"))}, {"max_pixels": LOW_DETAIL_PIXELS}),
        ({"tools": [], "tool_choice": "auto", "store": True, "stream": False, "background": False}, {}),
        ({"reasoning": {"effort": None}, "truncation": "disabled", "previous_response_id": None}, {}),
    ],
)
def test_parameters_are_kept_as_a_chat_completion_keeps_them(
    body: dict[str, Any], params: dict[str, Any]
) -> None:
    assert request(**body).params == params


def test_a_schema_lies_beside_its_type() -> None:
    form = {"type": "json_schema", "name": "mug", "strict": True, "schema": SCHEMA}
    kept = request(text={"format": form}).params["constraint"]["json_schema"]
    assert json.loads(kept) == SCHEMA


@pytest.mark.parametrize(
    ("body", "param", "remedy"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools", "JSON schema"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "whole conversation"),
        ({"conversation": "conv_1"}, "conversation", "whole conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "text in 'input'"),
        ({"background": True}, "background", "false"),
        ({"stream": True}, "stream", "false"),
        ({"truncation": "auto"}, "truncation", "Shorten"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort", "none"),
        ({"reasoning": "high"}, "reasoning", "object"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "in the prompt"),
        ({"text": {"colour": 1}}, "text.colour", "leave it out"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "json_schema"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format", "schema"),
        ({"text": {"format": {"type": "json_object"}}, "guided_choice": ["a"]}, "text.format", "one form"),
        ({"include": ["file_search_call.results"]}, "include[0]", "leave it out"),
        ({"include": "logprobs"}, "include", "list"),
        ({"top_logprobs": 21}, "top_logprobs", "20"),
        ({"max_output_tokens": 65}, "max_output_tokens", "64"),
        ({"max_tokens": 5}, "max_tokens", "leave it out"),
        ({"messages": []}, "messages", "leave it out"),
        ({"instructions": 5}, "instructions", "string"),
        ({"input": []}, "input", "at least one"),
        ({"input": "x" * 101}, "input", "limit is 100"),
        ({"input": ["hi"]}, "input[0]", "object"),
        ({"input": [{"type": "function_call_output"}]}, "input[0].type", "'message'"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "user"),
        ({"input": asking({"type": "text", "text": "x"})}, "input[0].content[0].type", "input_text"),
        ({"input": asking(image(image_url={"url": PIXEL}))}, "input[0].content[0].image_url", "the URL"),
        ({"input": asking(image(image_url=PIXEL, file_id="file-1"))}, "input[0].content[0]", "one of them"),
        ({"input": asking(image(image_url=PIXEL, detail="sharp"))}, "input[0].content[0].detail", "low"),
        ({"input": asking(*[image(image_url=PIXEL)] * 3)}, "input[0].content[2]", "limit is 2"),
    ],
)
def test_what_is_wrong_or_not_served_is_named_with_a_remedy(
    body: dict[str, Any], param: str, remedy: str
) -> None:
    code, where, message = refused(**body)
    assert (code, where) == ("invalid_request", f"body.{param}")
    assert remedy in message


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"model": "gpt-9"}, "model_not_found", "model"),
        ({"input": None}, "missing_required_field", "input"),
        ({"input": asking(image())}, "missing_required_field", "input[0].content[0].image_url"),
        ({"input": asking(image(file_id="mine.png"))}, "bad_url", "input[0].content[0].file_id"),
        ({"input": asking({"type": "input_audio"})}, "unsupported_modality", "input[0].content[0].type"),
    ],
)
def test_other_codes_are_those_of_chat_lines(body: dict[str, Any], code: str, param: str) -> None:
    assert refused(**body)[:2] == (code, f"body.{param}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=9), inner, max_size=2),
    max_leaves=6,
)
FIELDS = ("input", "instructions", "text", "reasoning", "include", "tools", "top_logprobs", "guided_choice")


@given(body=st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_body_is_a_request_or_told_what_is_wrong(body: dict[str, Any]) -> None:
    found = parse_line(line(**body), 1, RULES)
    assert isinstance(found, ParsedLine) or found.error.message


def test_an_answer_is_a_response_that_the_sdk_reads() -> None:
    found = answer(ANSWERED)
    assert (found.id, found.status, found.output_text) == ("resp_00000000000000ff", "completed", "A red mug.")
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.total_tokens) == (40, 5, 45)
    assert found.usage.input_tokens_details.cached_tokens == 32
    assert found.model_extra == {"vqueue": {"revision": "abc123"}}


def test_an_answer_that_was_cut_is_incomplete() -> None:
    found = answer(replace(ANSWERED, finish_reason="length", notes=["repetition"]))
    assert found.status == "incomplete"
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.model_extra == {"vqueue": {"revision": "abc123", "notes": ["repetition"]}}


def test_log_probabilities_have_bytes_even_where_a_token_has_none() -> None:
    found = answer(replace(ANSWERED, logprobs=[("A", -0.5, [("\ufffd", -1.0)])]))
    part: Any = found.output[0].model_dump()["content"][0]
    assert part["logprobs"] == [
        {
            "token": "A",
            "logprob": -0.5,
            "bytes": [65],
            "top_logprobs": [{"token": "\ufffd", "logprob": -1.0, "bytes": []}],
        }
    ]
