"""Numbers and times as the console shows them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console import formats


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0"), (1234567, "1,234,567"), (2.5, "2.50"), (3.0, "3")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert formats.number(value) == text


@pytest.mark.parametrize(
    ("part", "of", "text"),
    [
        (0, 0, "–"),
        (None, 5, "–"),
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (1, 3, "33.3 %"),
        (999_999, 1_000_000, "99.9 %"),
        (1, 1_000_000, "0.1 %"),
        (3, 2, "150 %"),
    ],
)
def test_a_share_is_whole_only_where_nothing_is_missing(part: float | None, of: float, text: str) -> None:
    assert formats.share(part, of) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (123_456_789, "123 MB"),
    ],
)
def test_sizes(amount: int | None, text: str) -> None:
    assert formats.size(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.44, "0.4 s"),
        (-3, "0 s"),
        (0.004, "0.1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


@given(st.floats(min_value=0, max_value=10**9))
def test_every_duration_says_something(seconds: float) -> None:
    assert formats.duration(seconds) not in ("", formats.DASH)


def test_a_moment_is_utc_for_who_has_no_script() -> None:
    shown = formats.moment(datetime(2026, 11, 30, 12, 5, tzinfo=UTC))
    assert shown == '<time datetime="2026-11-30T12:05:00+00:00">2026-11-30 12:05 UTC</time>'


@pytest.mark.parametrize(
    ("name", "text"),
    [("batch_0123456789abcdef", "batch_…abcdef"), ("file-0123456789abcdef", "file-…abcdef"), ("b", "b")],
)
def test_an_id_is_shortened_to_its_end(name: str, text: str) -> None:
    assert formats.short(name) == text
