"""Cards: what is said once where it is known twice."""

import pytest

from app.console.cards import Chip, is_label


@pytest.mark.parametrize(
    ("answer", "own", "once"),
    [
        ("red", [("", "red")], True),
        (" red\n", [("", "red")], True),
        ('"red"', [("", "red")], True),
        ("dark red", [("", "red")], False),
        ("red", [("colour", "red")], False),
        ("red", [("", "red"), ("", "blue")], False),
        ("red", [], False),
        (None, [("", "red")], False),
    ],
)
def test_an_answer_that_is_its_label_is_known_as_such(
    answer: str | None, own: list[tuple[str, str]], once: bool
) -> None:
    chips = [Chip(field, value, "", "none") for field, value in own]
    assert is_label(answer, chips) is once
