"""Sweeps on their pages: what a schedule says in words, and which state comes first."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.sweeps import change_views, schedule_in_words, state_of
from app.console.words import LANGUAGES, Words
from app.store.sweep_items import ChangeRow
from app.store.sweep_runs import COUNTS, RunRow
from app.store.sweeps import SweepRow

NOW = datetime(2026, 11, 30, 2, 30, tzinfo=UTC)
RUN = RunRow(
    id="run_1",
    sweep_id="sweep_1",
    kind="scheduled",
    due_at=NOW,
    state="running",
    policy_version="1",
    batch_ids=(),
    **dict.fromkeys(COUNTS, 0),
    error_code=None,
    error_message=None,
    created_at=NOW,
    started_at=NOW,
    stalled_at=None,
    ended_at=None,
)
SWEEP = SweepRow(
    id="sweep_1",
    tenant_id="tenant",
    key_id=None,
    name="nightly",
    source={"kind": "bucket", "prefix": "s3://a/"},
    questions=(),
    policy_version="1",
    model="demo",
    body={},
    cron="30 2 * * *",
    zone="UTC",
    destination=None,
    completion_window="24h",
    batch={},
    alert_after_s=3600,
    paused_at=None,
    next_due_at=NOW,
    created_at=NOW,
    updated_at=NOW,
)


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("30 2 * * *", "Every day at 02:30"),
        ("5 6 * * 1-5", "Monday to Friday at 06:05"),
        ("0 6 * * MON", "Mondays at 06:00"),
        ("0 6 * * 7", "Sundays at 06:00"),
        ("0 0 1 * *", "On day 1 of the month at 00:00"),
        ("*/15 * * * *", "Every 15 min"),
        ("* * * * *", "Every 1 min"),
        ("5 * * * *", "Every hour, at minute 05"),
        ("5 */6 * * *", "Every 6 h, at minute 05"),
        ("5 6 1 * 1", "By the cron line 5 6 1 * 1"),
        ("5 6 * 2 *", "By the cron line 5 6 * 2 *"),
        ("5 6 * * 1#2", "By the cron line 5 6 * * 1#2"),
        ("*/15 6 * * *", "By the cron line */15 6 * * *"),
        (None, "Only by hand"),
    ],
)
def test_a_schedule_is_said_in_words_where_there_are_any(cron: str | None, said: str) -> None:
    assert schedule_in_words(cron, Words("en")) == said


@given(st.text(alphabet="0123456789*/-,#L ", max_size=20), st.sampled_from(sorted(LANGUAGES)))
def test_whatever_a_cron_line_is_something_is_said(cron: str, language: str) -> None:
    assert schedule_in_words(cron, Words(language))


def test_a_run_that_stands_still_counts_before_all_else() -> None:
    assert state_of(replace(SWEEP, paused_at=NOW), replace(RUN, stalled_at=NOW)) == "stuck"
    assert state_of(SWEEP, RUN) == "running"
    assert state_of(replace(SWEEP, paused_at=NOW), replace(RUN, ended_at=NOW)) == "paused"
    assert state_of(SWEEP, replace(RUN, stalled_at=NOW, ended_at=NOW)) == "active"


def test_a_change_has_its_picture_where_the_item_is_known() -> None:
    rows = [ChangeRow("a", "colour", "red", "blue"), ChangeRow("b", "colour", "x" * 500, "blue")]
    known, unknown = change_views(rows, {"a": "f" * 64}, lambda found: f"/{found[0]}")
    assert (known.picture, unknown.picture, len(unknown.before)) == ("/f", None, 301)
