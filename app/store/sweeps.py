"""Sweeps: made, read, listed, changed, paused, deleted; and which are due."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Result, RowMapping, text
from sqlalchemy.orm import Session

from app.store.paging import read_page

JSONS = ("source", "questions", "body", "destination", "batch")
CHANGEABLE = (
    "name",
    "source",
    "questions",
    "policy_version",
    "model",
    "body",
    "cron",
    "zone",
    "destination",
    "completion_window",
    "batch",
    "alert_after_s",
)


@dataclass(frozen=True)
class SweepRow:
    """A sweep as its owner sees it. Times are null where they are still to come."""

    id: str
    tenant_id: str
    key_id: str | None
    name: str
    source: Mapping[str, Any]
    questions: Sequence[Mapping[str, Any]]
    policy_version: str
    model: str
    body: Mapping[str, Any]
    cron: str | None
    zone: str
    destination: Mapping[str, Any] | None
    completion_window: str
    batch: Mapping[str, Any]
    alert_after_s: int
    paused_at: datetime | None
    next_due_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class DueSweep:
    """A sweep whose time has come, locked until the transaction ends."""

    id: str
    cron: str
    zone: str
    next_due_at: datetime


def now(session: Session) -> datetime:
    """The database's clock, the one that all dispatchers share."""
    return session.execute(text("SELECT now()")).scalar_one()


def insert_sweep(
    session: Session, sweep_id: str, tenant_id: str, values: Mapping[str, Any]
) -> SweepRow | None:
    """A new sweep; None where the tenant has one of this name."""
    names = (*CHANGEABLE, "key_id", "next_due_at")
    return _one(
        session.execute(
            text(
                f"""
                INSERT INTO sweeps (id, tenant_id, {", ".join(names)})
                VALUES (:id, :tenant, {", ".join(map(_bound, names))})
                ON CONFLICT (tenant_id, name) WHERE deleted_at IS NULL DO NOTHING RETURNING *
                """  # noqa: S608 - names of our own
            ),
            {"id": sweep_id, "tenant": tenant_id, **_values(values)},
        )
    )


def read_sweep(session: Session, tenant_id: str, sweep_id: str, *, lock: bool = False) -> SweepRow | None:
    return _one(
        session.execute(
            text(
                f"""
                SELECT * FROM sweeps WHERE id = :id AND tenant_id = :tenant AND deleted_at IS NULL
                {"FOR UPDATE" if lock else ""}
                """  # noqa: S608 - a constant
            ),
            {"id": sweep_id, "tenant": tenant_id},
        )
    )


def list_sweeps(
    session: Session, tenant_id: str, *, limit: int, after: SweepRow | None
) -> Sequence[SweepRow]:
    """A page, newest first, from behind `after` on."""
    query = "SELECT * FROM sweeps WHERE tenant_id = :tenant AND deleted_at IS NULL"
    rows = read_page(session, query, {"tenant": tenant_id}, limit=limit, after=after)
    return [sweep_row(row) for row in rows.mappings()]


def name_taken(session: Session, tenant_id: str, name: str, *, but: str) -> bool:
    """Whether another sweep of the tenant has this name."""
    found = session.execute(
        text(
            """
            SELECT EXISTS (SELECT FROM sweeps WHERE tenant_id = :tenant AND name = :name
                           AND id <> :but AND deleted_at IS NULL)
            """
        ),
        {"tenant": tenant_id, "name": name, "but": but},
    )
    return found.scalar_one()


def update_sweep(session: Session, sweep_id: str, values: Mapping[str, Any]) -> SweepRow:
    """Change what is given, of a sweep that is locked."""
    changes = ", ".join(f"{name} = {_bound(name)}" for name in values)
    row = session.execute(
        text(
            f"UPDATE sweeps SET {changes}, updated_at = now() WHERE id = :id RETURNING *"  # noqa: S608 - names of our own
        ),
        {"id": sweep_id, **_values(values)},
    )
    return sweep_row(row.mappings().one())


def mark_deleted(session: Session, sweep_id: str) -> None:
    """Let a sweep be gone for its owner; its rows go in blocks."""
    session.execute(text("UPDATE sweeps SET deleted_at = now() WHERE id = :id"), {"id": sweep_id})


def delete_rows(session: Session, *, limit: int) -> int:
    """Remove so many rows of deleted sweeps whose runs have ended, at last the sweeps; how many."""
    gone = """
        SELECT s.id FROM sweeps s WHERE s.deleted_at IS NOT NULL AND NOT EXISTS (
            SELECT FROM sweep_runs r WHERE r.sweep_id = s.id AND r.ended_at IS NULL)"""
    for statement in (
        f"""DELETE FROM sweep_items WHERE (sweep_id, key) IN (
                SELECT sweep_id, key FROM sweep_items WHERE sweep_id IN ({gone}) LIMIT :limit)""",  # noqa: S608
        f"""DELETE FROM sweep_changes WHERE (run_id, key, question) IN (
                SELECT c.run_id, c.key, c.question FROM sweep_changes c
                JOIN sweep_runs r ON r.id = c.run_id WHERE r.sweep_id IN ({gone}) LIMIT :limit)""",  # noqa: S608
        f"DELETE FROM sweep_runs WHERE sweep_id IN ({gone})",  # noqa: S608
        f"DELETE FROM sweeps WHERE id IN ({gone})",  # noqa: S608
    ):
        removed = len(session.execute(text(f"{statement} RETURNING 1"), {"limit": limit}).all())
        if removed:
            return removed
    return 0


def delete_old_runs(session: Session, *, ended_before_s: float, limit: int) -> int:
    """Remove a block of the changes of runs that ended so long ago, at last the runs; how many rows.

    The newest run of a sweep stays, and so does the newest that was not cancelled.
    """
    old = """
        SELECT r.id FROM sweep_runs r WHERE r.ended_at < now() - :age * interval '1 second'
          AND EXISTS (SELECT FROM sweep_runs n WHERE n.sweep_id = r.sweep_id
                      AND (n.created_at, n.id) > (r.created_at, r.id))
          AND (r.state = 'cancelled' OR EXISTS (
              SELECT FROM sweep_runs n WHERE n.sweep_id = r.sweep_id AND n.state IN ('completed', 'failed')
              AND (n.created_at, n.id) > (r.created_at, r.id)))"""
    for statement in (
        f"""DELETE FROM sweep_changes WHERE (run_id, key, question) IN (
                SELECT run_id, key, question FROM sweep_changes WHERE run_id IN ({old}) LIMIT :limit)""",  # noqa: S608
        f"""DELETE FROM sweep_runs WHERE id IN (
                SELECT id FROM ({old}) AS old ORDER BY id LIMIT :limit)""",  # noqa: S608
    ):
        values = {"age": ended_before_s, "limit": limit}
        removed = len(session.execute(text(f"{statement} RETURNING 1"), values).all())
        if removed:
            return removed
    return 0


def take_due(session: Session, at: datetime) -> DueSweep | None:
    """A sweep that is due by now, which nobody else looks at."""
    row = session.execute(
        text(
            """
            SELECT id, cron, zone, next_due_at FROM sweeps
            WHERE next_due_at <= :at AND paused_at IS NULL AND deleted_at IS NULL AND cron IS NOT NULL
            ORDER BY next_due_at LIMIT 1 FOR UPDATE SKIP LOCKED
            """
        ),
        {"at": at},
    ).one_or_none()
    return DueSweep(*row) if row else None


def lock_later(session: Session, at: datetime) -> list[DueSweep]:
    """All sweeps that wait for a time to come."""
    rows = session.execute(
        text(
            """
            SELECT id, cron, zone, next_due_at FROM sweeps
            WHERE next_due_at > :at AND paused_at IS NULL AND deleted_at IS NULL AND cron IS NOT NULL
            ORDER BY id FOR UPDATE
            """
        ),
        {"at": at},
    )
    return [DueSweep(*row) for row in rows]


def set_next_due(session: Session, sweep_id: str, due: datetime | None) -> None:
    session.execute(text("UPDATE sweeps SET next_due_at = :due WHERE id = :id"), {"id": sweep_id, "due": due})


def _bound(name: str) -> str:
    return f"CAST(:{name} AS json)" if name in JSONS else f":{name}"


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value) if name in JSONS and value is not None else value
        for name, value in values.items()
    }


def _one(result: Result[Any]) -> SweepRow | None:
    row = result.mappings().one_or_none()
    return sweep_row(row) if row else None


def sweep_row(row: RowMapping) -> SweepRow:
    return SweepRow(**{field.name: row[field.name] for field in fields(SweepRow)})
