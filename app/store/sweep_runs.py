"""Runs of sweeps: once per due time, taken under a lease, brought from state to state."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Result, RowMapping, text
from sqlalchemy.orm import Session

from app.store.paging import read_page
from app.store.sweeps import SweepRow

COUNTS = ("listed", "new", "changed", "unchanged", "deleted", "asked", "completed", "failed", "differing")

# A run that can get on, its sweep beside it: an open one, or where there is none one that waits.
HAS_WORK = """
    r.ended_at IS NULL AND (r.lease_until IS NULL OR r.lease_until <= now())
    AND (r.state <> 'waiting' OR (
        s.deleted_at IS NULL AND (s.paused_at IS NULL OR r.kind = 'manual')
        AND NOT EXISTS (SELECT FROM sweep_runs o WHERE o.sweep_id = r.sweep_id
                        AND o.ended_at IS NULL AND o.state <> 'waiting')))"""
OVERTAKE = """
    UPDATE sweep_runs SET state = 'cancelled', ended_at = now(), error_code = 'overtaken',
        error_message = 'A later run of the same sweep was due before this one had its turn.'
    WHERE sweep_id = :sweep AND state = 'waiting' AND kind = 'scheduled' AND due_at < (
        SELECT max(due_at) FROM sweep_runs
        WHERE sweep_id = :sweep AND state = 'waiting' AND kind = 'scheduled')"""


@dataclass(frozen=True)
class RunRow:
    """A run as its owner sees it."""

    id: str
    sweep_id: str
    kind: str
    due_at: datetime
    state: str
    policy_version: str | None
    batch_ids: Sequence[str]
    listed: int
    new: int
    changed: int
    unchanged: int
    deleted: int
    asked: int
    completed: int
    failed: int
    differing: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    stalled_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class RunTask:
    """A run that was taken, and what it is a run of; `attempt` fences all that is said of it."""

    id: str
    attempt: int
    state: str
    sweep: SweepRow
    spec: Mapping[str, Any]  # questions, model, body
    parts: Sequence[Mapping[str, Any]]  # input files: file_id, lines
    batch_ids: Sequence[str]
    cursor: Mapping[str, int]
    due_at: datetime
    policy_version: str
    waited_s: float  # since it was last seen to get on


@dataclass(frozen=True)
class StalledRun:
    """A run that stands still."""

    id: str
    sweep_id: str
    state: str
    name: str
    tenant_id: str


class LostRun(Exception):
    """Somebody else has the run by now, or it was cancelled: leave it."""


def insert_run(session: Session, run_id: str, sweep_id: str, kind: str, due_at: datetime) -> bool:
    """A run that waits for its turn; False where this due time has one."""
    row = session.execute(
        text(
            """
            INSERT INTO sweep_runs (id, sweep_id, kind, due_at, state)
            VALUES (:id, :sweep, :kind, :due, 'waiting')
            ON CONFLICT (sweep_id, due_at) WHERE kind <> 'manual' DO NOTHING RETURNING id
            """
        ),
        {"id": run_id, "sweep": sweep_id, "kind": kind, "due": due_at},
    )
    return row.one_or_none() is not None


def read_run(session: Session, sweep_id: str, run_id: str) -> RunRow | None:
    return _one(
        session.execute(
            text("SELECT * FROM sweep_runs WHERE id = :id AND sweep_id = :sweep"),
            {"id": run_id, "sweep": sweep_id},
        )
    )


def list_runs(session: Session, sweep_id: str, *, limit: int, after: RunRow | None) -> Sequence[RunRow]:
    """A page, newest first, from behind `after` on."""
    query = "SELECT * FROM sweep_runs WHERE sweep_id = :sweep"
    rows = read_page(session, query, {"sweep": sweep_id}, limit=limit, after=after)
    return [run_row(row) for row in rows.mappings()]


def count_waiting(session: Session, sweep_id: str) -> int:
    return session.execute(
        text("SELECT count(*) FROM sweep_runs WHERE sweep_id = :sweep AND state = 'waiting'"),
        {"sweep": sweep_id},
    ).scalar_one()


def take_run(session: Session, *, lease_s: float) -> RunTask | None:
    """The next run that has work: one at a time of each sweep, the others wait.

    A waiting one begins here with what its sweep asks now. Of scheduled runs that wait, the newest goes, and
    those before it end: they would go through the same source.
    """
    sweep_id = session.execute(
        text(
            f"""
            SELECT s.id FROM sweep_runs r JOIN sweeps s ON s.id = r.sweep_id WHERE {HAS_WORK}
            ORDER BY r.lease_until NULLS FIRST, r.due_at, r.id LIMIT 1 FOR UPDATE OF s SKIP LOCKED
            """  # noqa: S608 - a constant
        )
    ).scalar_one_or_none()
    if sweep_id is None:
        return None
    # With the sweep locked nobody else begins a run of it; a statement of its own sees what came before that.
    session.execute(text(OVERTAKE), {"sweep": sweep_id})
    row = session.execute(
        text(
            f"""
            WITH taken AS (
                UPDATE sweep_runs r SET
                    attempt = attempt + 1, lease_until = now() + :lease * interval '1 second',
                    started_at = coalesce(started_at, now()),
                    moved_at = CASE WHEN state = 'waiting' THEN now() ELSE moved_at END,
                    policy_version = CASE WHEN state = 'waiting' THEN s.policy_version
                                          ELSE r.policy_version END,
                    spec = CASE WHEN state = 'waiting' THEN json_build_object(
                        'questions', s.questions, 'model', s.model, 'body', s.body) ELSE spec END,
                    state = CASE WHEN state = 'waiting' THEN 'listing' ELSE state END
                FROM sweeps s
                WHERE s.id = r.sweep_id AND r.id = (
                    SELECT r.id FROM sweep_runs r JOIN sweeps s ON s.id = r.sweep_id
                    WHERE s.id = :sweep AND {HAS_WORK}
                    ORDER BY r.due_at, r.id LIMIT 1)
                RETURNING r.*)
            SELECT s.*, taken.id AS run_id, taken.attempt, taken.state, taken.spec, taken.parts,
                   taken.batch_ids, taken.cursor, taken.due_at, taken.policy_version AS run_policy_version,
                   extract(epoch FROM now() - taken.moved_at)::float AS waited_s
            FROM taken JOIN sweeps s ON s.id = taken.sweep_id
            """  # noqa: S608 - a constant
        ),
        {"sweep": sweep_id, "lease": lease_s},
    )
    taken = row.mappings().one_or_none()
    return _task(taken) if taken else None


def hold_run(session: Session, task: RunTask, *, lease_s: float, mark: int = 0) -> None:
    """Keep a run for so much longer; `mark` is what it has got done since. `LostRun` for another's."""
    _say(
        session,
        task,
        """
        lease_until = now() + :lease * interval '1 second', mark = mark + :mark,
        moved_at = CASE WHEN :mark > 0 THEN now() ELSE moved_at END
        """,
        lease=lease_s,
        mark=mark,
    )


def give_back(session: Session, task: RunTask, *, after_s: float) -> None:
    """Let the run wait so long for its next turn."""
    _say(session, task, "lease_until = now() + :after * interval '1 second'", after=after_s)


def note_listed(session: Session, task: RunTask) -> None:
    """The source is listed whole: on to look at what may be the same in spite of its version."""
    _say(session, task, "state = 'checking', moved_at = now(), mark = mark + 1")


def note_counts(session: Session, task: RunTask, found: Mapping[str, int]) -> None:
    """How many images the run found new, changed, unchanged and deleted."""
    counts = {name: found.get(name, 0) for name in ("new", "changed", "unchanged", "deleted")}
    listed = sum(counts.values()) - counts["deleted"]
    sets = ", ".join(f"{name} = :{name}" for name in counts)
    _say(session, task, f"listed = :listed, {sets}", listed=listed, **counts)


def note_parts(session: Session, task: RunTask, parts: Sequence[Mapping[str, Any]]) -> None:
    """The input files are written."""
    _say(
        session,
        task,
        "state = 'submitting', moved_at = now(), mark = mark + 1, parts = CAST(:parts AS jsonb), "
        "asked = :asked",
        parts=json.dumps(list(parts)),
        asked=sum(part["lines"] for part in parts),
    )


def note_batch(session: Session, task: RunTask, batch_id: str, *, is_last: bool, lease_s: float) -> None:
    """The next of its files has its batch; with the last one it waits for them."""
    _say(
        session,
        task,
        """
        batch_ids = array_append(batch_ids, :batch), moved_at = now(), mark = mark + 1,
        state = CASE WHEN :last THEN 'running' ELSE state END,
        lease_until = now() + :lease * interval '1 second'
        """,
        batch=batch_id,
        last=is_last,
        lease=lease_s,
    )


def note_done(session: Session, task: RunTask, done: int, *, after_s: float) -> None:
    """So many of its jobs have ended by now: look again a little later."""
    _say(
        session,
        task,
        """
        moved_at = CASE WHEN mark <> :done THEN now() ELSE moved_at END, mark = :done,
        lease_until = now() + :after * interval '1 second'
        """,
        done=done,
        after=after_s,
    )


def note_cursor(
    session: Session, task: RunTask, cursor: Mapping[str, int], *, differing: int, lease_s: float
) -> None:
    """So many of the answers are noted; `differing` more of them are other than before."""
    _say(
        session,
        task,
        """
        cursor = CAST(:cursor AS jsonb), differing = differing + :differing, mark = mark + 1,
        moved_at = now(), lease_until = now() + :lease * interval '1 second'
        """,
        cursor=json.dumps(cursor),
        differing=differing,
        lease=lease_s,
    )


def end_run(
    session: Session,
    task: RunTask,
    state: str,
    *,
    code: str | None = None,
    message: str | None = None,
    counts: Mapping[str, int] | None = None,
) -> None:
    """Its last state. `counts` are of its jobs."""
    sets = "".join(f", {name} = :{name}" for name in counts or {})
    _say(
        session,
        task,
        "state = :state, ended_at = now(), lease_until = NULL, error_code = :code, "
        f"error_message = :message{sets}",
        state=state,
        code=code,
        message=message,
        **(counts or {}),
    )


def take_stalled(session: Session) -> list[StalledRun]:
    """Runs that have stood still for longer than their sweeps allow, each told once; those that move are not.

    One that waits behind another, or while its sweep is paused, does not stand still.
    """
    session.execute(
        text("UPDATE sweep_runs SET stalled_at = NULL WHERE ended_at IS NULL AND stalled_at < moved_at")
    )
    rows = session.execute(
        text(
            """
            UPDATE sweep_runs r SET stalled_at = now() FROM (
                SELECT r.id FROM sweep_runs r JOIN sweeps s ON s.id = r.sweep_id
                WHERE r.ended_at IS NULL AND r.stalled_at IS NULL
                  AND now() - alert_after_s * interval '1 second' > greatest(r.moved_at, (
                      SELECT max(o.ended_at) FROM sweep_runs o WHERE o.sweep_id = s.id))
                  AND (r.state <> 'waiting' OR (s.paused_at IS NULL AND NOT EXISTS (
                      SELECT FROM sweep_runs o
                      WHERE o.sweep_id = s.id AND o.ended_at IS NULL AND o.state <> 'waiting')))
                ORDER BY r.id FOR UPDATE OF r SKIP LOCKED) AS found, sweeps s
            WHERE r.id = found.id AND s.id = r.sweep_id
            RETURNING r.id, r.sweep_id, r.state, s.name, s.tenant_id
            """
        )
    )
    return [StalledRun(*row) for row in rows]


def count_stalled(session: Session) -> int:
    return session.execute(
        text("SELECT count(*) FROM sweep_runs WHERE ended_at IS NULL AND stalled_at IS NOT NULL")
    ).scalar_one()


def count_open(session: Session) -> dict[str, int]:
    """Runs that have not ended, by state."""
    rows = session.execute(
        text("SELECT state, count(*) FROM sweep_runs WHERE ended_at IS NULL GROUP BY state")
    )
    return {row[0]: row[1] for row in rows}


def cancel_runs(session: Session, sweep_id: str) -> list[str]:
    """End all runs of a sweep that have not ended; the batches that they have open."""
    rows = session.execute(
        text(
            """
            UPDATE sweep_runs SET state = 'cancelled', ended_at = now(), lease_until = NULL,
                attempt = attempt + 1, error_code = 'sweep_deleted', error_message = 'The sweep was deleted.'
            WHERE sweep_id = :sweep AND ended_at IS NULL RETURNING batch_ids
            """
        ),
        {"sweep": sweep_id},
    )
    return [batch for ids in rows.scalars() for batch in ids]


def _say(session: Session, task: RunTask, sets: str, **values: Any) -> None:
    row = session.execute(
        text(
            f"""
            UPDATE sweep_runs SET {sets}
            WHERE id = :run AND attempt = :attempt AND ended_at IS NULL RETURNING id
            """  # noqa: S608 - pieces of our own
        ),
        {"run": task.id, "attempt": task.attempt, **values},
    )
    if row.one_or_none() is None:
        raise LostRun


def _one(result: Result[Any]) -> RunRow | None:
    row = result.mappings().one_or_none()
    return run_row(row) if row else None


def run_row(row: RowMapping) -> RunRow:
    return RunRow(**{field.name: row[field.name] for field in fields(RunRow)})


def _task(row: RowMapping) -> RunTask:
    return RunTask(
        id=row["run_id"],
        attempt=row["attempt"],
        state=row["state"],
        sweep=SweepRow(**{field.name: row[field.name] for field in fields(SweepRow)}),
        spec=row["spec"],
        parts=row["parts"],
        batch_ids=row["batch_ids"],
        cursor=row["cursor"] or {"part": 0, "line": 0},
        due_at=row["due_at"],
        policy_version=row["run_policy_version"],
        waited_s=row["waited_s"],
    )
