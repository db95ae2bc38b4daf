"""What is asked of which image, and under which ids."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat import chat_rules
from app.config import Settings
from app.errors import RequestError
from app.lines import LineRules, ParsedLine, parse_line
from app.states import Endpoint
from app.store.sweep_items import AnsweredJob, StaleItem
from app.sweeps.checking import same, wishes_of
from app.sweeps.collecting import answered
from app.sweeps.questions import (
    MOST_KEY,
    Asking,
    custom_id,
    item_key,
    question_hashes,
    request_line,
    split_id,
    to_ask,
)

RULES = LineRules(Endpoint.CHAT, chat_rules(Settings(model_name="demo")))
names = st.text(st.characters(codec="utf-8", exclude_characters=":\0"), min_size=1, max_size=64)
keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=1024)


def spec(**changes: Any) -> dict[str, Any]:
    questions = [{"name": "colour", "ask": "Which colour?"}, {"name": "shape", "ask": "Which?"}]
    return {"questions": questions, "model": "demo", "body": {"max_tokens": 9}} | changes


@given(st.dictionaries(names, st.text()), st.dictionaries(names, st.text()))
def test_asked_is_what_has_no_answer_under_the_same_hash(asked: dict[str, str], now: dict[str, str]) -> None:
    wanted = to_ask(asked, now)
    assert set(wanted) == {name for name in now if (name, now[name]) not in asked.items()}
    assert to_ask(asked | {name: now[name] for name in wanted}, now) == []


@given(keys, names)
def test_an_id_leads_back_to_its_image_and_question(name: str, question: str) -> None:
    key = item_key(name)
    assert split_id(custom_id(key, question)) == (key, question)
    assert len(custom_id(key, question)) <= 512


@given(st.text("ab", min_size=1), st.text("ab", min_size=1))
def test_long_names_that_begin_alike_have_keys_of_their_own(one: str, other: str) -> None:
    keys = {item_key("x" * MOST_KEY + name) for name in (one, other)}
    assert len(keys) == len({one, other})


def test_a_hash_is_of_everything_that_an_answer_depends_on() -> None:
    first = question_hashes(spec())
    choices = [{"name": "colour", "ask": "Which colour?", "choices": ["red"]}, spec()["questions"][1]]
    assert question_hashes(spec(questions=choices))["colour"] != first["colour"]
    assert question_hashes(spec(questions=choices))["shape"] == first["shape"]
    assert question_hashes(spec(model="other"))["shape"] != first["shape"]
    assert question_hashes(spec(body={}))["shape"] != first["shape"]
    assert question_hashes(spec(questions=[spec()["questions"][0] | {"schema": None}])) == {
        "colour": first["colour"]
    }


def test_a_line_is_a_request_that_ingest_takes() -> None:
    question = {"name": "colour", "ask": "Which colour?", "choices": ["red", "blue"]}
    body = {"system": "Be brief.", "detail": "low", "max_tokens": 9}
    parsed = parse_line(request_line("a.png", "s3://bucket/a.png", question, spec(body=body)), 1, RULES)
    assert isinstance(parsed, ParsedLine)
    assert parsed.custom_id == "a.png:colour"
    assert [turn["role"] for turn in parsed.request.prompt["turns"]] == ["system", "user"]
    assert 9 in parsed.request.params.values()


def test_a_schema_holds_the_answer_to_its_form() -> None:
    question = {"name": "n", "ask": "?", "schema": {"type": "object"}}
    line = json.loads(request_line("a", "s3://bucket/a", question, spec(body={})))
    assert line["body"]["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_answers_are_gathered_by_image() -> None:
    jobs = [
        AnsweredJob(1, "a:colour", "red", "h1"),
        AnsweredJob(2, "a:shape", "round", None),
        AnsweredJob(3, "b:shape", "square", "h2"),
        AnsweredJob(4, "b:other", "not ours", "h2"),
    ]
    hashes = question_hashes(spec())
    first, second = answered(jobs, Asking(spec()), {})
    assert (first.key, first.content_hash, first.asked) == ("a", "h1", hashes)
    assert (second.answers, second.asked) == ({"shape": "square"}, {"shape": hashes["shape"]})


TITLED = spec(
    questions=[{"name": "fits", "ask": "Is it a {title}? {{}}"}, {"name": "plain", "ask": "Which colour?"}]
)


def test_a_question_is_filled_with_the_cells_of_its_item() -> None:
    line = json.loads(Asking(TITLED).line("a", "s3://bucket/a", {"title": "red {shoe}"}, "fits"))
    assert line["body"]["messages"][0]["content"][1]["text"] == "Is it a red {shoe}? {}"


@given(st.text(), st.text())
def test_another_cell_is_another_question_only_where_it_is_named(one: str, other: str) -> None:
    before, after = (Asking(TITLED).hashes({"title": title, "price": title}) for title in (one, other))
    assert (before["fits"] == after["fits"]) == (one == other)
    assert before["plain"] == after["plain"] == question_hashes(TITLED)["plain"]


def test_a_single_brace_is_refused() -> None:
    with pytest.raises(RequestError, match=r"single '\{'") as refused:
        Asking(spec(questions=[{"name": "a", "ask": "{"}]))
    assert refused.value.param == "questions[0].ask"


def test_only_the_same_content_is_the_same() -> None:
    items = [
        StaleItem(key, f"s3://bucket/{key}", "h" if key != "new" else None) for key in ("is", "not", "new")
    ]
    wishes = wishes_of(items)
    fetched = {wishes["is"].ref_hash: "h", wishes["not"].ref_hash: "other", wishes["new"].ref_hash: None}
    assert same(items, wishes, fetched) == ["is"]
