"""How long webhooks are sent again, and how long a failing endpoint rests."""

from hypothesis import given
from hypothesis import strategies as st

from app.persistence import GIVE_UP_S, LONGEST_REST_S, LONGEST_S, TRIPS_AFTER, next_try, rest

SPREADS = st.floats(0, 1, exclude_max=True)


def tries(spread: float) -> list[float]:
    """When a message that never arrives is sent, in seconds after the first time."""
    moments, attempt = [0.0], 1
    while (delay := next_try(attempt, age_s=moments[-1], spread=spread)) is not None:
        moments.append(moments[-1] + delay)
        attempt += 1
    return moments


@given(SPREADS)
def test_a_message_is_tried_for_most_of_a_day_and_not_for_ever(spread: float) -> None:
    moments = tries(spread)
    assert 10 <= len(moments) <= 20
    assert GIVE_UP_S - 1.2 * LONGEST_S <= moments[-1] <= GIVE_UP_S
    assert moments[1] <= 6


@given(st.integers(1, 100), st.floats(0, GIVE_UP_S), SPREADS, st.floats(0, 1e9))
def test_a_receiver_that_asks_for_time_gets_it_within_reason(
    attempt: int, age_s: float, spread: float, asked_s: float
) -> None:
    delay = next_try(attempt, age_s=age_s, spread=spread, retry_after_s=asked_s)
    if delay is not None:
        assert min(asked_s, LONGEST_S) <= delay <= 1.2 * LONGEST_S


@given(st.integers(0, 1000))
def test_an_endpoint_rests_longer_with_every_failure_up_to_a_limit(failures: int) -> None:
    assert rest(failures) <= rest(failures + 1) <= LONGEST_REST_S
    assert (rest(failures) > 0) == (failures >= TRIPS_AFTER)
