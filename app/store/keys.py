"""API keys and the tenants they belong to. Only hashes of keys are ever stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session


@dataclass(frozen=True)
class KeyOwner:
    """Whose key a hash belongs to, and whether it still opens anything."""

    key_id: str
    tenant_id: str
    expired: bool
    revoked: bool
    scopes: frozenset[str]
    requests_per_minute: int | None  # of its tenant
    is_use_stale: bool  # its last use was noted a while ago


@dataclass(frozen=True)
class KeyRow:
    id: str
    tenant: str
    name: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    scopes: Sequence[str]
    last_used_at: datetime | None


def find_owner(session: Session, key_hash: bytes) -> KeyOwner | None:
    row = session.execute(
        text(
            """
            SELECT k.id, k.tenant_id, coalesce(k.expires_at <= now(), false) AS expired,
                   k.revoked_at IS NOT NULL AS revoked, k.scopes, t.requests_per_minute,
                   coalesce(k.last_used_at < now() - interval '1 minute', true) AS is_use_stale
            FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE k.key_hash = :hash
            """
        ),
        {"hash": key_hash},
    ).one_or_none()
    if row is None:
        return None
    return KeyOwner(
        row.id,
        row.tenant_id,
        row.expired,
        row.revoked,
        frozenset(row.scopes),
        row.requests_per_minute,
        row.is_use_stale,
    )


def note_use(session: Session, key_id: str) -> None:
    """Note that a key is used now, unless somebody just does so."""
    session.execute(
        text(
            """
            UPDATE api_keys SET last_used_at = now() WHERE id IN (
                SELECT id FROM api_keys WHERE id = :id FOR UPDATE SKIP LOCKED)
            """
        ),
        {"id": key_id},
    )


def ensure_tenant(session: Session, *, new_id: str, name: str) -> str:
    """The id of the tenant of this name, which is made with `new_id` if there is none."""
    return session.execute(
        text(
            """
            INSERT INTO tenants (id, name) VALUES (:id, :name)
            ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
            """
        ),
        {"id": new_id, "name": name},
    ).scalar_one()


def insert_key(
    session: Session,
    *,
    key_id: str,
    tenant_id: str,
    name: str,
    prefix: str,
    key_hash: bytes,
    expires_days: int | None,
    scopes: Sequence[str],
) -> None:
    session.execute(
        text(
            """
            INSERT INTO api_keys (id, tenant_id, name, prefix, key_hash, scopes, expires_at)
            VALUES (:id, :tenant, :name, :prefix, :hash, CAST(:scopes AS text[]),
                    now() + CAST(:days AS int) * interval '1 day')
            """
        ),
        {
            "id": key_id,
            "tenant": tenant_id,
            "name": name,
            "prefix": prefix,
            "hash": key_hash,
            "days": expires_days,
            "scopes": list(scopes),
        },
    )


KEYS = """
    SELECT k.id, t.name AS tenant, k.name, k.prefix, k.created_at, k.expires_at, k.revoked_at, k.scopes,
           k.last_used_at
    FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
"""


def list_keys(session: Session, tenant_id: str | None = None) -> Sequence[KeyRow]:
    """All keys, or a tenant's."""
    rows = session.execute(
        text(
            f"""
            {KEYS} WHERE CAST(:tenant AS text) IS NULL OR k.tenant_id = :tenant ORDER BY k.created_at, k.id
            """
        ),
        {"tenant": tenant_id},
    ).mappings()
    return [KeyRow(**row) for row in rows]


def read_key(session: Session, tenant_id: str, key_id: str) -> KeyRow | None:
    row = session.execute(
        text(f"{KEYS} WHERE k.id = :id AND k.tenant_id = :tenant"), {"id": key_id, "tenant": tenant_id}
    ).mappings()
    found = row.one_or_none()
    return KeyRow(**found) if found else None


def expire_key(session: Session, key_id: str, *, in_s: float) -> None:
    """Have a key open nothing from then on; one that ends before that stays so."""
    session.execute(
        text(
            """
            UPDATE api_keys
            SET expires_at = least(coalesce(expires_at, 'infinity'), now() + :in * interval '1 second')
            WHERE id = :id
            """
        ),
        {"id": key_id, "in": in_s},
    )


def revoke_key(session: Session, key_id: str) -> str | None:
    """Close a key for good; whose it is, None for no key. Doing it twice keeps the first moment."""
    return session.execute(
        text(
            """
            UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE id = :id RETURNING tenant_id
            """
        ),
        {"id": key_id},
    ).scalar_one_or_none()
