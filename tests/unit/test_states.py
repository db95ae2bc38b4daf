"""States lead nowhere after an end, and an error decides the next try by its kind alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import FatalWork, ImageError, InvalidWork, TransientWork, WorkError
from app.states import (
    BATCH_MOVES,
    CLAIMABLE,
    ENDED_BATCH,
    ENDED_JOB,
    JOB_MOVES,
    OUR_STORE_AWAY,
    BatchStatus,
    GiveUp,
    JobState,
    RetryPolicy,
    TryAgain,
    after_error,
)

POLICY = RetryPolicy(attempts=5, base_s=1.0, longest_s=300.0)
spreads = st.floats(0, 1, exclude_max=True)
worth_another_try = st.sampled_from([TransientWork("timeout", "slow"), FatalWork("bug", "ours")])


def test_every_state_has_its_moves() -> None:
    assert set(JOB_MOVES) == set(JobState)
    assert set(BATCH_MOVES) == set(BatchStatus)


@given(st.lists(st.sampled_from(JobState), max_size=20))
def test_no_path_leaves_a_terminal_job_state(path: list[JobState]) -> None:
    state = JobState.WAITING
    for wanted in path:
        ended = state in ENDED_JOB
        state = wanted if wanted in JOB_MOVES[state] else state
        assert not ended or state in ENDED_JOB


@pytest.mark.parametrize("state", sorted(set(JobState) - ENDED_JOB))
def test_every_open_job_state_can_reach_an_end(state: JobState) -> None:
    reached = {state}
    for _ in JobState:
        reached |= {follower for known in reached for follower in JOB_MOVES[known]}
    assert reached & ENDED_JOB


@pytest.mark.parametrize("status", sorted(set(BatchStatus) - ENDED_BATCH))
def test_every_open_batch_can_reach_an_end(status: BatchStatus) -> None:
    reached = {status}
    for _ in BatchStatus:
        reached |= {follower for known in reached for follower in BATCH_MOVES[known]}
    assert reached & ENDED_BATCH


def test_a_job_is_claimed_only_before_it_runs() -> None:
    assert {JobState.READY, JobState.QUEUED} == CLAIMABLE


@given(st.integers(1, 9), spreads)
def test_an_invalid_job_is_never_tried_again(attempt: int, spread: float) -> None:
    for error in (InvalidWork("bad_url", "no"), ImageError("corrupt_image", "no")):
        assert after_error(error, attempt=attempt, policy=POLICY, spread=spread) == GiveUp(error.code, "no")


@given(worth_another_try, st.integers(1, 4), spreads)
def test_other_errors_are_tried_again_after_a_doubling_delay(
    error: WorkError, attempt: int, spread: float
) -> None:
    decided = after_error(error, attempt=attempt, policy=POLICY, spread=spread)
    assert isinstance(decided, TryAgain)
    assert 0.5 * 2 ** (attempt - 1) <= decided.after_s <= 2 ** (attempt - 1)


@given(worth_another_try, st.integers(5, 50), spreads)
def test_the_last_attempt_ends_the_job_and_says_how_often_it_was_tried(
    error: WorkError, attempt: int, spread: float
) -> None:
    decided = after_error(error, attempt=attempt, policy=POLICY, spread=spread)
    assert decided == GiveUp(error.code, f"{error.message} (tried {attempt} times)")


@given(st.integers(1, 100), spreads)
def test_an_outage_of_our_own_store_never_ends_a_job(attempt: int, spread: float) -> None:
    error = TransientWork(OUR_STORE_AWAY, "away")
    decided = after_error(error, attempt=attempt, policy=POLICY, spread=spread)
    assert isinstance(decided, TryAgain)
    assert not decided.counts
    assert POLICY.outage_s / 2 <= decided.after_s <= POLICY.outage_s


def test_a_host_that_names_a_delay_gets_it() -> None:
    error = TransientWork("http_429", "slow down", retry_after_s=40)
    assert after_error(error, attempt=1, policy=POLICY, spread=0) == TryAgain(40)


def test_a_host_cannot_ask_for_more_than_the_longest_delay() -> None:
    error = TransientWork("http_503", "next year", retry_after_s=10**9)
    assert after_error(error, attempt=1, policy=POLICY, spread=0) == TryAgain(300)
