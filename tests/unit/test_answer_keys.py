"""What an answer is kept by: everything that it depends on, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answer_keys import (
    READ,
    SHARED,
    WRITE,
    CacheMode,
    answer_key,
    canonical,
    fingerprint,
    is_repeatable,
    last_words,
    question_hash,
    question_id,
)

PARAMS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=4)


def key(**changes: object) -> bytes:
    given: dict[str, object] = {
        "scope": "tenant_a",
        "model": "demo",
        "question": b"q",
        "content_hashes": ["aa", "bb"],
    }
    return answer_key(**{**given, **changes})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": "tenant_b"},
        {"scope": SHARED},
        {"model": "large"},
        {"question": b"p"},
        {"content_hashes": ["bb", "aa"]},
        {"content_hashes": ["aa"]},
        {"content_hashes": ["aab", "b"]},
        {"content_hashes": ["aa", "bb", "bb"]},
    ],
)
def test_whatever_an_answer_depends_on_gives_another_key(changes: dict[str, object]) -> None:
    assert key(**changes) != key()


def test_the_same_question_has_the_same_key() -> None:
    assert key() == key()
    assert len(key()) == 32


@given(PARAMS, st.randoms())
def test_parameters_hash_alike_in_whatever_order_they_are_named(
    params: dict[str, object], random: object
) -> None:
    names = list(params)
    random.shuffle(names)  # pyright: ignore[reportAttributeAccessIssue]
    assert canonical({name: params[name] for name in names}) == canonical(params)


@given(st.text(), PARAMS, st.text(), PARAMS)
def test_other_words_or_parameters_hash_otherwise(
    prompt: str, params: dict[str, object], other: str, others: dict[str, object]
) -> None:
    same = (prompt, json.dumps(params, sort_keys=True)) == (other, json.dumps(others, sort_keys=True))
    assert (question_hash(prompt, canonical(params)) == question_hash(other, canonical(others))) == same


@pytest.mark.parametrize(
    ("params", "repeatable"),
    [
        ({}, True),
        ({"temperature": 0}, True),
        ({"temperature": 0.0, "top_p": 0.5}, True),
        ({"temperature": 0.01}, False),
        ({"temperature": 1, "seed": 7}, False),
    ],
)
def test_only_greedy_answers_are_kept(params: dict[str, object], repeatable: bool) -> None:
    assert is_repeatable(params) is repeatable


def test_a_mode_says_whether_to_take_and_whether_to_keep() -> None:
    assert {mode: mode.bits for mode in CacheMode} == {
        "on": READ | WRITE,
        "off": 0,
        "read": READ,
        "write": WRITE,
    }


def test_a_question_is_known_by_its_last_words() -> None:
    turns = [
        {"role": "system", "parts": [{"text": "Be brief."}]},
        {"role": "user", "parts": [{"image": 0}, {"text": "Colour?"}]},
    ]
    assert last_words({"turns": turns}) == "Colour?"
    assert last_words({"turns": [{"role": "user", "parts": [{"image": 0}]}]}) == ""
    assert question_id("Colour?") != question_id("colour?")


def test_an_engine_is_another_one_by_any_part() -> None:
    assert fingerprint({"revision": "a", "dtype": "int8"}) == fingerprint({"dtype": "int8", "revision": "a"})
    assert fingerprint({"revision": "a", "dtype": "int8"}) != fingerprint({"revision": "a", "dtype": "auto"})
