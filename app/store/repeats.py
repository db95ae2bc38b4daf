"""Idempotency keys of files and direct jobs: what each has made. Batches keep theirs in their own rows."""

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

# The stock SDK is done with its retries after half an hour; a client's own loop may take a night.
KEPT_S = 86_400


def find_made(session: Session, tenant_id: str, kind: str, key: str) -> Row[tuple[str, str]] | None:
    """What was made with this key: `object_id`, and the `request_hash` of what asked for it."""
    return session.execute(
        text(
            """
            SELECT object_id, request_hash FROM idempotency_keys
            WHERE tenant_id = :tenant AND kind = :kind AND key = :key
              AND created_at > now() - :kept * interval '1 second'
            """
        ),
        {"tenant": tenant_id, "kind": kind, "key": key, "kept": KEPT_S},
    ).one_or_none()


def note_made(
    session: Session, tenant_id: str, kind: str, key: str, *, request_hash: str, object_id: str
) -> None:
    """Note what a key has made; what it made long ago, or what is gone by now, is forgotten."""
    session.execute(
        text(
            """
            INSERT INTO idempotency_keys (tenant_id, kind, key, request_hash, object_id)
            VALUES (:tenant, :kind, :key, :hash, :object)
            ON CONFLICT (tenant_id, kind, key) DO UPDATE SET
                request_hash = excluded.request_hash, object_id = excluded.object_id, created_at = now()
            """
        ),
        {"tenant": tenant_id, "kind": kind, "key": key, "hash": request_hash, "object": object_id},
    )


def forget_old(session: Session, *, limit: int) -> int:
    """Remove a block of keys that count no more; how many."""
    gone = session.execute(
        text(
            """
            DELETE FROM idempotency_keys USING (
                SELECT tenant_id, kind, key FROM idempotency_keys
                WHERE created_at <= now() - :kept * interval '1 second'
                ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED) AS old
            WHERE idempotency_keys.tenant_id = old.tenant_id AND idempotency_keys.kind = old.kind
              AND idempotency_keys.key = old.key
            RETURNING 1
            """
        ),
        {"kept": KEPT_S, "limit": limit},
    )
    return len(gone.all())
