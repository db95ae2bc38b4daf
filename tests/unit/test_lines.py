"""One input line becomes a job, or says which field is wrong and what to do."""

import json
from typing import Any

import pytest

from app.chat import ChatRules, ModelRules
from app.lines import BadLine, LineRules, ParsedLine, RawLine, parse_line
from app.messages import LOW_DETAIL_PIXELS
from app.references import RefKind

RULES = LineRules(
    endpoint="/v1/chat/completions",
    chat=ChatRules(models={"demo": ModelRules("demo", 100, 64)}, images_per_job=2),
)
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def body(**changes: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": "What is it?"}], **changes}


def line(**changes: Any) -> bytes:
    fields = {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": body()} | changes
    return json.dumps(fields).encode()


def without(field: str) -> bytes:
    fields = json.loads(line())
    del fields[field]
    return json.dumps(fields).encode()


def asking(*parts: Any, **changes: Any) -> bytes:
    return line(body=body(messages=[{"role": "user", "content": list(parts)}], **changes))


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def parsed(raw: bytes, number: int = 1) -> ParsedLine:
    found = parse_line(raw, number, RULES)
    assert isinstance(found, ParsedLine), found
    return found


def refused(raw: bytes | None, number: int = 1) -> BadLine:
    found = parse_line(raw, number, RULES)
    assert isinstance(found, BadLine), found
    return found


def test_a_text_question_becomes_a_prompt() -> None:
    found = parsed(line(custom_id="row-7"), 7)
    assert (found.line, found.custom_id, found.request.model) == (7, "row-7", "demo")
    assert found.request.prompt == {"turns": [{"role": "user", "parts": [{"text": "What is it?"}]}]}
    assert found.request.images == ()


def test_an_image_stands_where_the_client_put_it() -> None:
    found = parsed(asking({"type": "text", "text": "Is"}, image(PIXEL), {"type": "text", "text": "red?"}))
    assert found.request.prompt["turns"][0]["parts"] == [{"text": "Is"}, {"image": 0}, {"text": "red?"}]
    assert found.request.images[0].kind is RefKind.DATA
    assert found.request.image_params == ("messages[0].content[1].image_url.url",)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://example.com/a.jpg", RefKind.URL),
        ("s3://shop/a.jpg", RefKind.S3),
        ("file-0123abc", RefKind.FILE),
    ],
)
def test_an_image_may_be_a_url_a_key_or_a_file(url: str, kind: RefKind) -> None:
    assert parsed(asking(image(url))).request.images[0].kind is kind


@pytest.mark.parametrize("text", ["x" * 50, "照" * 50])
def test_the_text_of_all_messages_may_be_as_long_as_the_limit(text: str) -> None:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": text}]
    assert parsed(line(body=body(messages=messages)))


def test_a_longer_text_is_refused_with_both_numbers() -> None:
    parts = [{"type": "text", "text": "x" * 50}, {"type": "text", "text": "y"}]
    messages = [{"role": "system", "content": "x" * 50}, {"role": "user", "content": parts}]
    found = refused(line(body=body(messages=messages)))
    assert (found.error.code, found.error.param) == ("invalid_request", "body.messages")
    assert "has 101 characters; the limit is 100." in found.error.message


def test_a_developer_speaks_as_the_system() -> None:
    messages = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    found = parsed(line(body=body(messages=messages)))
    assert [turn["role"] for turn in found.request.prompt["turns"]] == ["system", "user"]


def test_only_the_parameters_given_are_kept() -> None:
    found = parsed(line(body=body(max_tokens=5, temperature=0, seed=None, stop="\n", user="u1")))
    assert found.request.params == {"max_tokens": 5, "temperature": 0.0, "stop": ["\n"]}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 20}, {"logprobs": 20}),
        ({"logprobs": False, "top_logprobs": 0}, {}),
        ({"repetition_penalty": 1.1, "top_k": 5}, {"repetition_penalty": 1.1, "top_k": 5}),
        ({"guided_choice": ["yes", "no"]}, {"constraint": {"choice": ["yes", "no"]}}),
    ],
)
def test_what_is_asked_of_the_answer_is_kept(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert parsed(line(body=body(**given))).request.params == kept


def test_low_detail_everywhere_caps_the_pixels() -> None:
    found = parsed(asking(image(PIXEL, detail="low"), image(PIXEL, detail="low")))
    assert found.request.params == {"max_pixels": LOW_DETAIL_PIXELS}


def test_low_detail_of_one_image_leaves_the_other_its_pixels() -> None:
    assert parsed(asking(image(PIXEL, detail="low"), image(PIXEL))).request.params == {}


def test_values_that_mean_not_used_are_taken() -> None:
    assert parsed(line(body=body(stream=False, n=1, tools=[], response_format={"type": "text"})))


def test_unknown_fields_of_the_line_are_taken() -> None:
    assert parsed(line(note="mine"))


@pytest.mark.parametrize("custom_id", ["café", "cafe\u0301", "../../etc/passwd", "a\u2028b", "x" * 512])
def test_a_custom_id_is_kept_as_it_is(custom_id: str) -> None:
    assert parsed(line(custom_id=custom_id)).custom_id == custom_id


@pytest.mark.parametrize("custom_id", [None, True, 7, "", "x" * 513, "a\0b", "\ud83d"])
def test_a_custom_id_that_cannot_be_given_back_is_refused(custom_id: Any) -> None:
    found = refused(line(custom_id=custom_id), 3)
    assert (found.error.code, found.error.line, found.error.param) == ("invalid_custom_id", 3, "custom_id")
    assert found.custom_id is None


@pytest.mark.parametrize("field", ["custom_id", "method", "url", "body"])
def test_a_missing_field_is_named(field: str) -> None:
    found = refused(without(field))
    assert (found.error.code, found.error.param) == ("missing_required_field", field)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"method": "GET"}, "invalid_method", "method"),
        ({"method": None}, "invalid_method", "method"),
        ({"url": "/v1/embeddings"}, "url_mismatch", "url"),
        ({"url": "http://127.0.0.1/v1/chat/completions"}, "url_mismatch", "url"),
        ({"url": None}, "url_mismatch", "url"),
        ({"body": [1]}, "invalid_request", "body"),
    ],
)
def test_a_line_for_another_place_is_refused(changes: dict[str, Any], code: str, param: str) -> None:
    found = refused(line(**changes))
    assert (found.custom_id, found.error.code, found.error.param) == ("r1", code, param)


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[1, 2]",
        b'"hello"',
        b"{",
        b"{} {}",
        line() + b" tail",
        line().replace(b"r1", b"r\x0c1"),
        line() + b"\r" + line(),
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_object_is_refused_with_its_line(raw: bytes) -> None:
    found = refused(raw, 4)
    assert (found.custom_id, found.error.code, found.error.line) == (None, "invalid_json_line", 4)
    assert "one JSON object per line" in found.error.message


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"null", "it is null, not an object"),
        (b"[true, null]", "it is [true, null], not"),
        (b"9" * 5000, "a number of thousands of digits"),
        (b'{"a": NaN}', "NaN is no JSON value"),
    ],
)
def test_a_line_is_told_of_in_the_words_of_json(raw: bytes, words: str) -> None:
    message = refused(raw).error.message
    assert words in message
    assert "sys." not in message


def test_another_encoding_is_refused_and_named() -> None:
    found = refused("{'prix': 'é'}".encode("latin-1"))
    assert found.error.code == "invalid_encoding"
    assert "UTF-8" in found.error.message
    assert "0xE9" in found.error.message


def test_a_line_that_is_too_long_is_refused() -> None:
    assert refused(None).error.code == "line_too_long"


def test_a_byte_order_mark_is_taken_at_the_start_only() -> None:
    assert parsed(b"\xef\xbb\xbf" + line(), 1)
    assert refused(b"\xef\xbb\xbf" + line(), 2).error.code == "invalid_json_line"


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"model": None}, "missing_required_field", "body.model"),
        ({"model": "gpt-4"}, "model_not_found", "body.model"),
        ({"model": 5}, "invalid_request", "body.model"),
        ({"messages": None}, "missing_required_field", "body.messages"),
        ({"messages": []}, "invalid_request", "body.messages"),
        ({"messages": ["hi"]}, "invalid_request", "body.messages[0]"),
        ({"messages": [{"content": "hi"}]}, "missing_required_field", "body.messages[0].role"),
        ({"messages": [{"role": "tool", "content": "hi"}]}, "invalid_request", "body.messages[0].role"),
        ({"messages": [{"role": "user"}]}, "missing_required_field", "body.messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "invalid_request", "body.messages[0].content"),
        ({"stream": True}, "invalid_request", "body.stream"),
        ({"n": 2}, "invalid_request", "body.n"),
        ({"n": True}, "invalid_request", "body.n"),
        ({"tools": [{"type": "function"}]}, "invalid_request", "body.tools"),
        ({"response_format": {"type": "xml"}}, "invalid_request", "body.response_format"),
        ({"logprobs": 5}, "invalid_request", "body.logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_request", "body.top_logprobs"),
        ({"top_logprobs": 2}, "invalid_request", "body.top_logprobs"),
        ({"repetition_penalty": 0}, "invalid_request", "body.repetition_penalty"),
        ({"repetition_penalty": 2.5}, "invalid_request", "body.repetition_penalty"),
        ({"max_tokens": -5}, "invalid_request", "body.max_tokens"),
        ({"max_tokens": "100"}, "invalid_request", "body.max_tokens"),
        ({"max_tokens": 65}, "invalid_request", "body.max_tokens"),
        ({"max_completion_tokens": 0}, "invalid_request", "body.max_completion_tokens"),
        ({"temperature": 5}, "invalid_request", "body.temperature"),
        ({"temperature": True}, "invalid_request", "body.temperature"),
        ({"top_p": 0}, "invalid_request", "body.top_p"),
        ({"seed": 2**63}, "invalid_request", "body.seed"),
        ({"stop": [""]}, "invalid_request", "body.stop"),
        ({"surprise": 1}, "invalid_request", "body.surprise"),
    ],
)
def test_a_wrong_field_of_the_body_is_named(changes: dict[str, Any], code: str, param: str) -> None:
    found = refused(line(body=body(**changes)))
    assert (found.custom_id, found.error.code, found.error.param) == ("r1", code, param)
    assert found.model is None


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "picture"}, "type"),
        ("hello", "type"),
        ({"type": "text", "text": 5}, "text"),
        ({"type": "text", "text": "\ud83d"}, "text"),
        ({"type": "image_url", "image_url": "https://example.com/a.jpg"}, "image_url"),
        (image(""), "image_url.url"),
        (image("\ud83d"), "image_url.url"),
        (image(PIXEL, detail="sharp"), "image_url.detail"),
    ],
)
def test_a_wrong_part_is_named(part: Any, param: str) -> None:
    found = refused(asking({"type": "text", "text": "a"}, part))
    assert (found.error.code, found.error.param) == (
        "invalid_request",
        f"body.messages[0].content[1].{param}",
    )


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}, "frames"),
        ({"type": "input_video", "input_video": {"data": ""}}, "frames"),
        ({"type": "video", "video": "a.mp4"}, "frames"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "transcript"),
        ({"type": "audio_url", "audio_url": {"url": "https://example.com/a.mp3"}}, "transcript"),
    ],
)
def test_video_and_audio_are_refused_with_what_to_send_instead(part: Any, instead: str) -> None:
    found = refused(asking({"type": "text", "text": "a"}, part))
    assert (found.error.code, found.error.param) == (
        "unsupported_modality",
        "body.messages[0].content[1].type",
    )
    assert instead in found.error.message


def test_too_many_images_name_the_limit() -> None:
    found = refused(asking(*[image(PIXEL)] * 3))
    assert found.error.param == "body.messages[0].content[2].image_url"
    assert "limit is 2" in found.error.message


def test_only_a_user_shows_images() -> None:
    messages = [{"role": "system", "content": [image(PIXEL)]}]
    assert refused(line(body=body(messages=messages))).error.code == "invalid_request"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file:///etc/passwd", "blocked_url"),
        ("ftp://example.com/a.jpg", "blocked_url"),
        ("https://", "bad_url"),
        ("data:", "bad_data_url"),
        ("data:image/png;base64,!!", "bad_base64"),
        (" DATA:video/mp4;base64,AAAA", "unsupported_modality"),
        ("data:audio/wav;base64,AAAA", "unsupported_modality"),
    ],
)
def test_an_unusable_image_is_the_fault_of_a_request(url: str, code: str) -> None:
    found = refused(asking(image(url)))
    assert (found.error.code, found.model) == (code, "demo")
    assert found.error.param == "body.messages[0].content[0].image_url.url"


@pytest.mark.parametrize("data", [b"", b" \t", b"\r", b"\xef\xbb\xbf", b"\xef\xbb\xbf \r"])
def test_a_line_of_nothing_is_blank(data: bytes) -> None:
    assert RawLine(1, data, len(data) + 1).is_blank


@pytest.mark.parametrize("data", [b"\x0c", b"\xc2\xa0", b"{}"])
def test_a_line_with_anything_in_it_is_not_blank(data: bytes) -> None:
    assert not RawLine(1, data, len(data) + 1).is_blank
