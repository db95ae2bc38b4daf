"""How far two people agree: by hand, and whatever they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.opinions import agreed, agreements, kappa

SAID = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.integers(1, 50)), min_size=1)


def test_kappa_is_what_books_say() -> None:
    """The example of Cohen's kappa in every book: 20 and 15 the same, 5 and 10 not."""
    said = [("yes", "yes", 20), ("yes", "no", 5), ("no", "yes", 10), ("no", "no", 15)]
    assert kappa(said) == pytest.approx(0.4)


@given(SAID)
def test_kappa_is_never_above_one_and_one_only_for_the_same(said: list[tuple[str, str, int]]) -> None:
    found = kappa(said)
    total = sum(count for *_, count in said)
    if found is None:
        assert len({value for one, other, _ in said for value in (one, other)}) == 1
    else:
        assert -1.000001 <= found <= 1.000001
        assert (found > 0.999999) == (agreed(said) == total)


def test_each_question_field_and_pair_has_a_line() -> None:
    rows = [
        ("q", "", "k1", "k2", "a", "a", 3),
        ("q", "", "k1", "k2", "a", "b", 1),
        (None, "f", "k1", "k3", "a", "a", 2),
    ]
    first, second = agreements(rows)
    assert (first.question, first.answers, first.agreed, first.rate) == ("q", 4, 3, 0.75)
    assert (second.field, second.other, second.kappa) == ("f", "k3", None)
