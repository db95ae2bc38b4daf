"""Processes that serve models, and when they were last heard of."""

from sqlalchemy import text
from sqlalchemy.orm import Session


def register(session: Session, *, worker: str, role: str, model: str | None, revision: str | None) -> None:
    session.execute(
        text(
            """
            INSERT INTO workers (id, role, model, revision) VALUES (:id, :role, :model, :revision)
            ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
            """
        ),
        {"id": worker, "role": role, "model": model, "revision": revision},
    )


def heartbeat(session: Session, *, worker: str) -> None:
    session.execute(text("UPDATE workers SET heartbeat_at = now() WHERE id = :id"), {"id": worker})


def leave(session: Session, *, worker: str) -> None:
    session.execute(text("DELETE FROM workers WHERE id = :id"), {"id": worker})


def forget_silent(session: Session, *, after_s: float) -> int:
    """Drop rows of processes not heard of for long; how many."""
    rows = session.execute(
        text("DELETE FROM workers WHERE heartbeat_at < now() - :after * interval '1 second' RETURNING id"),
        {"after": after_s},
    )
    return len(rows.all())
