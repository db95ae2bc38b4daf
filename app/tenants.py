"""Tenants: listed, and given their weights."""

from collections.abc import Sequence

from app.db import Sessions, transaction
from app.store import tenants as store
from app.store.tenants import TenantRow


class Tenants:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def list(self) -> Sequence[TenantRow]:
        with transaction(self._sessions) as session:
            return store.list_tenants(session)

    def weigh(self, name: str, weight: float) -> bool:
        """Give a tenant its part of a busy model, beside the others' weights; whether it is there."""
        with transaction(self._sessions) as session:
            return store.set_weight(session, name, weight)
