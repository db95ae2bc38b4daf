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


@dataclass(frozen=True)
class KeyRow:
    id: str
    tenant: str
    name: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def find_owner(session: Session, key_hash: bytes) -> KeyOwner | None:
    row = session.execute(
        text(
            """
            SELECT id, tenant_id, coalesce(expires_at <= now(), false) AS expired,
                   revoked_at IS NOT NULL AS revoked
            FROM api_keys WHERE key_hash = :hash
            """
        ),
        {"hash": key_hash},
    ).one_or_none()
    return KeyOwner(row.id, row.tenant_id, row.expired, row.revoked) if row else None


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
) -> None:
    session.execute(
        text(
            """
            INSERT INTO api_keys (id, tenant_id, name, prefix, key_hash, expires_at)
            VALUES (:id, :tenant, :name, :prefix, :hash, now() + CAST(:days AS int) * interval '1 day')
            """
        ),
        {
            "id": key_id,
            "tenant": tenant_id,
            "name": name,
            "prefix": prefix,
            "hash": key_hash,
            "days": expires_days,
        },
    )


def list_keys(session: Session) -> Sequence[KeyRow]:
    rows = session.execute(
        text(
            """
            SELECT k.id, t.name AS tenant, k.name, k.prefix, k.created_at, k.expires_at, k.revoked_at
            FROM api_keys k JOIN tenants t ON t.id = k.tenant_id ORDER BY k.created_at, k.id
            """
        )
    ).mappings()
    return [KeyRow(**row) for row in rows]


def revoke_key(session: Session, key_id: str) -> bool:
    """Close a key for good; whether there is such a key. Doing it twice keeps the first moment."""
    row = session.execute(
        text("UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE id = :id RETURNING id"),
        {"id": key_id},
    ).one_or_none()
    return row is not None
