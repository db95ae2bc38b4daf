"""The price table is read strictly, and priced by its own numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.prices import Price, read_prices

COUNTS = st.integers(0, 10**9)


def test_a_table_has_a_price_for_each_model() -> None:
    found = read_prices("demo input=0.20 cached=0.05 output=0.60, big input=1 output=2 currency=EUR")
    assert found == {"demo": Price(0.2, 0.05, 0.6), "big": Price(1.0, 1.0, 2.0, "EUR")}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("demo input=1", "output"),
        ("demo input=x output=1", "input=x"),
        ("demo input=-1 output=1", "input=-1"),
        ("demo input=1 output=nan", "nan"),
        ("demo input=1 output=2 extra=3", "extra"),
        ("demo input=1 input=1 output=2", "input=1"),
        ("input=1 output=2", "model"),
        ("demo input=1 output=2, demo input=1 output=2", "twice"),
    ],
)
def test_what_is_no_price_is_refused_by_its_name(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        read_prices(text)


@given(COUNTS, COUNTS, COUNTS)
def test_cached_tokens_never_make_it_dearer(prompt: int, cached: int, completion: int) -> None:
    price = Price(input=1.0, cached=0.25, output=2.0)
    whole = price.of(prompt=prompt, cached=0, completion=completion)
    saved = price.of(prompt=prompt, cached=cached, completion=completion)
    assert 0 <= saved <= whole
