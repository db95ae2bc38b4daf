"""The questions: each has one right answer, and JSON requests name their keys."""

import json

import pytest

from demo.evaluate import Asked, is_right
from demo.pictures import draw
from demo.products import ALL_KINDS, COUNTS, KINDS, VALUES, Kind, combinations, product_for
from demo.questions import (
    QUESTIONS,
    json_answer,
    json_kinds,
    json_request,
    question_for,
    right_answer,
    yes_no,
)

PRODUCT = product_for(11, held_out=True)
PICTURE = draw(PRODUCT, 11)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_product_has_an_answer_of_every_kind(kind: Kind) -> None:
    products = [product_for(seed, held_out=seed % 2 == 0) for seed in range(100)]

    assert {right_answer(product, kind) for product in products} <= set(VALUES[kind])


def test_a_split_has_all_combinations_between_its_sides() -> None:
    assert len(combinations(held_out=True)) == 32
    assert len(combinations(held_out=False)) == 224


def test_no_wording_serves_two_kinds() -> None:
    wordings = [wording for kind in ALL_KINDS for wording in QUESTIONS[kind]]

    assert len(set(wordings)) == len(wordings)


def test_question_for_starts_with_a_known_wording() -> None:
    assert question_for("colour", 5).startswith(tuple(QUESTIONS["colour"]))


def test_json_request_names_its_keys_in_order() -> None:
    assert json_request(["item", "colour"]) == "Answer in JSON with keys item and colour."


def test_json_answer_holds_the_asked_keys_and_a_number_for_the_count() -> None:
    answer = json.loads(json_answer(PRODUCT, ["count", "item"]))

    assert list(answer) == ["count", "item"]
    assert answer["count"] in COUNTS


def test_json_keys_are_kinds_without_repetition() -> None:
    for seed in range(50):
        kinds = json_kinds(seed)
        assert set(kinds) <= set(KINDS)
        assert len(set(kinds)) == len(kinds) >= 2


def test_yes_and_no_are_both_right_sometimes() -> None:
    assert {yes_no(PRODUCT, seed)[1] for seed in range(20)} == {"yes", "no"}


@pytest.mark.parametrize(("answer", "right"), [("red", True), ("Red", False), ("red.", False), ("", False)])
def test_a_word_counts_only_when_it_is_exact(answer: str, right: bool) -> None:
    assert is_right(Asked("colour", PICTURE, "What colour is it?", "red"), answer) is right


@pytest.mark.parametrize(
    ("answer", "right"), [('{"item":"mug"}', True), ('{"item": "hat"}', False), ('{"item', False)]
)
def test_json_counts_whatever_its_spaces(answer: str, right: bool) -> None:
    assert is_right(Asked("json", PICTURE, "Give item as JSON.", '{"item": "mug"}'), answer) is right
