"""Tenants and their weights."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session


@dataclass(frozen=True)
class TenantRow:
    id: str
    name: str
    weight: float


def list_tenants(session: Session) -> Sequence[TenantRow]:
    rows = session.execute(text("SELECT id, name, weight FROM tenants ORDER BY name")).mappings()
    return [TenantRow(**row) for row in rows]


def set_weight(session: Session, name: str, weight: float) -> bool:
    """Give the tenant of this name its part of a busy model; whether there is one."""
    row = session.execute(
        text("UPDATE tenants SET weight = :weight WHERE name = :name RETURNING id"),
        {"name": name, "weight": weight},
    ).one_or_none()
    return row is not None
