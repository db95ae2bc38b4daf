"""A batch's pace follows what is measured, without jumping with every burst."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pace import completion_at, next_pace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
paces = st.floats(0, 1e5)
seconds = st.floats(0.1, 1e5)
counts = st.integers(0, 10**6)


@given(paces, counts, seconds)
def test_the_pace_lies_between_what_it_was_and_what_was_measured(
    pace: float, jobs: int, seconds: float
) -> None:
    found = next_pace(pace, jobs=jobs, seconds=seconds)
    rate = jobs / seconds
    assert found is not None
    assert min(pace, rate) * (1 - 1e-9) - 1e-9 <= found <= max(pace, rate) * (1 + 1e-9) + 1e-9


@given(counts, seconds)
def test_a_steady_pace_stays_as_it_is(jobs: int, seconds: float) -> None:
    rate = jobs / seconds
    assert next_pace(rate, jobs=jobs, seconds=seconds) == pytest.approx(rate)


@given(paces, st.integers(0, 1000), st.integers(1, 100), st.integers(1, 9))
def test_looking_more_often_changes_nothing(pace: float, rate: int, seconds: int, looks: int) -> None:
    once = next_pace(pace, jobs=rate * seconds * looks, seconds=seconds * looks)
    often: float | None = pace
    for _ in range(looks):
        often = next_pace(often, jobs=rate * seconds, seconds=seconds)
    assert often == pytest.approx(once, rel=1e-6, abs=1e-6)


def test_a_burst_moves_the_pace_by_its_share_of_a_minute_only() -> None:
    found = next_pace(10.0, jobs=1_000, seconds=6)
    assert found is not None
    assert found == pytest.approx(10 + 0.095 * (1_000 / 6 - 10), rel=0.01)


def test_the_pace_is_unknown_until_a_job_has_ended() -> None:
    assert next_pace(None, jobs=0, seconds=10) is None
    assert next_pace(None, jobs=20, seconds=10) == 2.0


def test_no_time_tells_nothing() -> None:
    assert next_pace(3.0, jobs=5, seconds=0) == 3.0


@given(st.floats(1e-3, 1e5), st.integers(1, 10**4))
def test_the_end_is_as_far_off_as_what_is_left_takes(pace: float, left: int) -> None:
    found = completion_at(pace, measured_at=NOW, left=left)
    assert found is not None
    assert (found - NOW).total_seconds() == pytest.approx(left / pace, abs=1e-5)


def test_an_end_that_is_not_known_is_none() -> None:
    assert completion_at(None, measured_at=NOW, left=5) is None
    assert completion_at(0.0, measured_at=NOW, left=5) is None
    assert completion_at(1.0, measured_at=None, left=5) is None
    assert completion_at(1.0, measured_at=NOW, left=0) is None
    assert completion_at(1e-9, measured_at=NOW, left=10**6) is None
    assert completion_at(1.0, measured_at=NOW, left=60) == NOW + timedelta(minutes=1)
