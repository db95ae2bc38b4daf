"""A batch that could move and does not is found, so is one that will be late; one that waits is neither."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.standing import OpenBatch, Standing, is_late, longest

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = OpenBatch(
    id="b",
    status="in_progress",
    lines=100,
    ended=40,
    total=100,
    has_turn=True,
    pace=1.0,
    pace_at=NOW,
    created_at=NOW - timedelta(minutes=10),
    expires_at=NOW + timedelta(minutes=10),
)


def stood(*looks: OpenBatch, every_s: int = 10) -> float:
    """For how long the last look finds the batch to have stood still, one look each so many seconds."""
    standing = Standing()
    found = [
        standing.look([batch], NOW + timedelta(seconds=number * every_s))
        for number, batch in enumerate(looks)
    ]
    return found[-1]["b"].total_seconds()


def test_a_batch_whose_counts_stay_stands_still_since_they_do() -> None:
    assert stood(replace(RUNNING, ended=39), RUNNING, RUNNING, RUNNING) == 20


def test_any_movement_ends_a_standstill() -> None:
    for moved in ({"ended": 41}, {"lines": 101}, {"status": "finalizing"}):
        assert stood(RUNNING, RUNNING, replace(RUNNING, **moved)) == 0


def test_a_batch_that_waits_for_its_turn_does_not_stand_still() -> None:
    waiting = replace(RUNNING, has_turn=False)
    assert stood(waiting, waiting, waiting) == 0
    assert stood(waiting, waiting, RUNNING, RUNNING) == 20


def test_one_whose_jobs_have_all_ended_is_to_be_finalized() -> None:
    done = replace(RUNNING, ended=100, has_turn=False)
    assert stood(done, done) == 10


def test_batches_that_have_ended_are_forgotten() -> None:
    standing = Standing()
    standing.look([RUNNING], NOW)
    assert standing.look([], NOW) == {}
    assert standing.look([RUNNING], NOW + timedelta(hours=1)) == {"b": timedelta()}


def test_the_longest_standstill_of_each_status_is_told() -> None:
    other = replace(RUNNING, id="c", status="finalizing")
    still = {"b": timedelta(seconds=5), "c": timedelta(seconds=70)}
    told = longest([RUNNING, other], still)
    assert told == {"validating": 0, "in_progress": 5, "finalizing": 70, "cancelling": 0}


@pytest.mark.parametrize(
    ("change", "late"),
    [
        ({"pace": 0.11}, False),
        ({"pace": 0.09}, True),
        ({"pace": 0.0}, False),
        ({"pace": 0.0, "created_at": NOW - timedelta(minutes=30)}, True),
        ({"pace": None, "created_at": NOW - timedelta(minutes=29)}, False),
        ({"pace": 0.09, "has_turn": False}, False),
        ({"pace": 0.09, "has_turn": False, "created_at": NOW - timedelta(hours=1)}, True),
        ({"pace": 0.01, "status": "finalizing"}, False),
        ({"pace": 0.01, "ended": 100}, False),
    ],
    ids=str,
)
def test_a_batch_is_late_when_its_pace_does_not_suffice(change: dict[str, object], late: bool) -> None:
    assert is_late(replace(RUNNING, **change), NOW) is late
