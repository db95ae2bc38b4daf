"""What holds for any bytes: no line raises, and lines are the same however a file arrives."""

import json
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app import lines
from app.chat import ChatRules, ModelRules
from app.lines import BadLine, LineRules, ParsedLine, parse_line, split_lines

RULES = LineRules(
    endpoint="/v1/chat/completions",
    chat=ChatRules(models={"demo": ModelRules("demo", 100, 64)}, images_per_job=2),
)
FIELDS = {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions"}

# Letters that break things somewhere: NUL, half a pair, separators, and what URLs are made of.
TEXT = st.text(st.sampled_from("a7\0\ud83dé\n\u2028 :/.%,;@"), max_size=12)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PARTS = st.one_of(
    ANY_JSON,
    st.fixed_dictionaries({"type": st.just("text"), "text": ANY_JSON}),
    st.fixed_dictionaries(
        {
            "type": st.just("image_url"),
            "image_url": st.fixed_dictionaries(
                {"url": ANY_JSON | TEXT.map("data:image/png;base64,".__add__)}
            ),
        }
    ),
)
BODIES = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(PARTS, max_size=3)}),
            max_size=3,
        )
    },
    optional=dict.fromkeys(("max_tokens", "temperature", "stop", "seed", "n", "other"), ANY_JSON),
)


@given(raw=st.binary(max_size=200), number=st.integers(1, 2**31 - 1))
def test_no_bytes_make_the_parser_raise(raw: bytes, number: int) -> None:
    assert isinstance(parse_line(raw, number, RULES), ParsedLine | BadLine)


@given(body=BODIES)
def test_no_body_makes_the_parser_raise(body: dict[str, Any]) -> None:
    raw = json.dumps({**FIELDS, "body": {"model": "demo", **body}}).encode()
    found = parse_line(raw, 1, RULES)
    assert isinstance(found, ParsedLine | BadLine)
    assert found.custom_id in ("r1", None)


@given(value=ANY_JSON, field=st.sampled_from(["custom_id", "method", "url", "body", "other"]))
def test_what_is_refused_is_told_in_storable_words(value: Any, field: str) -> None:
    found = parse_line(json.dumps({**FIELDS, "body": {}, field: value}).encode(), 1, RULES)
    assert isinstance(found, BadLine)
    told = f"{found.error.message}{found.error.param}{found.custom_id}"
    assert "\0" not in told.encode().decode()


@given(pieces=st.lists(st.text("ab\r\n\u2028", max_size=5).map(str.encode), max_size=8))
def test_lines_are_those_between_newlines_however_the_bytes_arrive(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    found = list(split_lines(pieces))
    assert [line.data for line in found] == whole.removesuffix(b"\n").split(b"\n")[: len(found)]
    assert sum(line.size for line in found) == len(whole)
    assert [line.number for line in found] == list(range(1, len(found) + 1))


def test_a_line_over_the_limit_has_no_data_and_the_next_one_is_whole() -> None:
    piece = b"x" * 2**20
    found = list(split_lines([piece] * 33 + [b"\nnext\n"], first=5))
    assert (found[0].number, found[0].data, found[0].size) == (5, None, 33 * 2**20 + 1)
    assert (found[1].number, found[1].data) == (6, b"next")


def test_a_line_over_the_limit_takes_no_memory() -> None:
    tracemalloc.start()
    found = list(split_lines(b"x" * 2**20 for _ in range(200)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found[0].size == 200 * 2**20
    assert peak < 2.5 * lines.MAX_LINE_BYTES


def test_a_line_at_the_limit_is_whole() -> None:
    found = list(split_lines([b"x" * lines.MAX_LINE_BYTES, b"\n"]))
    assert found[0].data == b"x" * lines.MAX_LINE_BYTES
