"""The audit log: who did what, written with the act itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.actor import Actor


@dataclass(frozen=True)
class AuditRow:
    """One act. Without a key it was done by a command on the machine."""

    id: int
    at: datetime
    tenant_id: str | None
    key_id: str | None
    action: str
    object_id: str | None
    request_id: str | None
    details: Mapping[str, Any] | None


def note(
    session: Session,
    who: Actor,
    action: str,
    object_id: str,
    details: Mapping[str, Any] | None = None,
    *,
    tenant_id: str | None = None,
) -> None:
    """Note an act in the transaction that does it. `tenant_id` is whose object it is, if not the actor's."""
    session.execute(
        text(
            """
            INSERT INTO audit_log (tenant_id, key_id, action, object_id, request_id, details)
            VALUES (:tenant, :key, :action, :object, :request, CAST(:details AS jsonb))
            """
        ),
        {
            "tenant": tenant_id or who.tenant_id,
            "key": who.key_id,
            "action": action,
            "object": object_id,
            "request": who.request_id,
            "details": json.dumps(details) if details else None,
        },
    )


def read_log(
    session: Session, tenant_id: str | None, *, limit: int, before: int | None
) -> Sequence[AuditRow]:
    """The newest first, those before a number; of all tenants where none is given."""
    rows = session.execute(
        text(
            """
            SELECT id, at, tenant_id, key_id, action, object_id, request_id, details FROM audit_log
            WHERE (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
              AND (CAST(:before AS bigint) IS NULL OR id < :before)
            ORDER BY id DESC LIMIT :limit
            """
        ),
        {"tenant": tenant_id, "before": before, "limit": limit},
    )
    return [AuditRow(*row) for row in rows]


def delete_old(session: Session, *, older_than_s: float, limit: int) -> int:
    """Remove what is so old; how much."""
    rows = session.execute(
        text(
            """
            DELETE FROM audit_log WHERE id IN (
                SELECT id FROM audit_log WHERE at < now() - :age * interval '1 second'
                ORDER BY id LIMIT :limit)
            RETURNING id
            """
        ),
        {"age": older_than_s, "limit": limit},
    )
    return len(rows.all())
