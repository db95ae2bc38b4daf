"""Tenants, their weights and what they may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

LIMITS = ("quota_queued_jobs", "quota_bytes", "quota_images_day", "requests_per_minute")
COLUMNS = f"id, name, weight, {', '.join(LIMITS)}"


@dataclass(frozen=True)
class TenantRow:
    id: str
    name: str
    weight: float
    quota_queued_jobs: int | None  # null: the setting; 0: no limit
    quota_bytes: int | None
    quota_images_day: int | None
    requests_per_minute: int | None


def list_tenants(session: Session) -> Sequence[TenantRow]:
    rows = session.execute(text(f"SELECT {COLUMNS} FROM tenants ORDER BY name")).mappings()  # noqa: S608
    return [TenantRow(**row) for row in rows]


def find_tenant(session: Session, name: str) -> TenantRow | None:
    row = session.execute(
        text(f"SELECT {COLUMNS} FROM tenants WHERE name = :name"),  # noqa: S608 - the constant above
        {"name": name},
    ).mappings()
    found = row.one_or_none()
    return TenantRow(**found) if found else None


def set_limits(session: Session, tenant_id: str, limits: Mapping[str, int | None]) -> None:
    """Give a tenant these limits, by the names of LIMITS; None is the setting's."""
    named = ", ".join(f"{name} = :{name}" for name in LIMITS if name in limits)
    session.execute(
        text(f"UPDATE tenants SET {named} WHERE id = :id"),  # noqa: S608 - the constant above
        {"id": tenant_id, **limits},
    )


def set_weight(session: Session, name: str, weight: float) -> bool:
    """Give the tenant of this name its part of a busy model; whether there is one."""
    row = session.execute(
        text("UPDATE tenants SET weight = :weight WHERE name = :name RETURNING id"),
        {"name": name, "weight": weight},
    ).one_or_none()
    return row is not None
