"""Tenants: listed, and given their weights and limits."""

from collections.abc import Mapping, Sequence

from app.actor import actor
from app.db import Sessions, transaction
from app.store import audit, quotas
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

    def limit(self, name: str, limits: Mapping[str, int | None]) -> TenantRow | None:
        """Change these limits of a tenant; the tenant as it is then, None where there is none."""
        with transaction(self._sessions) as session:
            tenant = store.find_tenant(session, name)
            if tenant is None or not limits:
                return tenant
            store.set_limits(session, tenant.id, limits)
            audit.note(session, actor(), "quota.changed", tenant.id, limits, tenant_id=tenant.id)
            return store.find_tenant(session, name)

    def used(self, tenant: TenantRow) -> Mapping[str, int]:
        """What a tenant has now of what its quotas are about."""
        with transaction(self._sessions) as session:
            return {
                "quota_queued_jobs": quotas.count_open_jobs(session, tenant.id),
                "quota_bytes": quotas.sum_bytes(session, tenant.id),
                "quota_images_day": quotas.count_fetched_today(session, tenant.id),
            }
