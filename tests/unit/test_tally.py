"""What a dry run counts does not depend on how lines fall into blocks, and survives being written down."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.blocks import Block
from app.chat import ChatRequest
from app.errors import LineError
from app.lines import BadLine, ParsedLine
from app.references import parse_reference
from app.tally import Tally, read_tally, text_tokens

MOST = {"demo": 100, "other": 7}
Line = ParsedLine | BadLine


def parsed(number: int, model: str, picture: int | None) -> ParsedLine:
    images = () if picture is None else (parse_reference(f"https://a.example/{picture}.jpg"),)
    prompt = {"turns": [{"role": "user", "parts": [{"text": "Which?"}]}]}
    request = ChatRequest(model, prompt, {}, images, tuple("image" for _ in images))
    return ParsedLine(number, f"r{number}", request)


LINES = st.lists(
    st.one_of(
        st.builds(parsed, st.integers(1, 99), st.sampled_from(list(MOST)), st.none() | st.integers(0, 20)),
        st.builds(
            lambda number, code: BadLine(None, LineError(code, "bad", number), number),
            st.integers(1, 99),
            st.sampled_from(["a", "b"]),
        ),
    ),
    max_size=40,
)


def counted(blocks: Sequence[Sequence[Line]]) -> Tally:
    tally = Tally()
    for block in blocks:
        tally.add(Block(block, 0, len(block)), sample=4, max_new_tokens=MOST)
        tally = read_tally(json.loads(json.dumps(tally.as_json())))
    return tally


@given(LINES, st.integers(1, 10))
def test_blocks_make_no_difference(lines: list[Line], size: int) -> None:
    pieces = [lines[start : start + size] for start in range(0, len(lines), size)]
    assert counted(pieces) == counted([lines])


@given(LINES)
def test_every_line_is_a_request_or_a_bad_one(lines: list[Line]) -> None:
    tally = counted([lines])
    assert tally.requests + tally.bad_lines == tally.rows == len(lines)
    assert sum(tally.models.values()) == tally.requests
    assert tally.output_most == sum(
        MOST[line.request.model] for line in lines if isinstance(line, ParsedLine)
    )


@given(LINES)
def test_the_sample_is_of_distinct_images_and_bounded(lines: list[Line]) -> None:
    sample = counted([lines]).sample
    named = {image.ref for line in lines if isinstance(line, ParsedLine) for image in line.request.images}
    assert len(sample) == len({one.ref for one in sample}) == min(4, len(named))
    assert {one.ref for one in sample} <= named


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_text_has_about_as_many_tokens_as_its_parts(first: str, second: str) -> None:
    whole, parts = text_tokens(first + second), text_tokens(first) + text_tokens(second)
    assert parts - 1 <= whole <= parts
