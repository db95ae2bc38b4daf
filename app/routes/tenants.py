"""(ours) What belongs to a tenant as a whole, over HTTP: its keys and its audit log."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.audit import AuditLog, entry_name
from app.auth import Keys, Tenant
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.render import ends, unix, unix_or_none
from app.routes.strict import STRICT
from app.schemas.tenants import AuditEntry, AuditList, KeyCreate, KeyList, KeyObject, KeyWithSecret
from app.store.audit import AuditRow
from app.store.keys import KeyRow

BODY_BYTES = 16 * 1024


def tenant_routes(*, keys: Keys, audit: AuditLog, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["tenant"], dependencies=STRICT)
    read_body = json_body(KeyCreate, max_bytes=BODY_BYTES, empty=b"{}")

    @router.get("/keys")
    def list_keys(tenant: Annotated[Tenant, Depends(caller.admin)]) -> KeyList:
        """The tenant's keys, those that are revoked too; none is shown."""
        return KeyList(data=[_key(row) for row in keys.list_of(tenant.id)])

    @router.get("/key")
    def read_key(tenant: Annotated[Tenant, Depends(caller.any)]) -> KeyObject:
        """The key that asks: what it is called, and its scopes."""
        return _key(keys.read_of(tenant))

    @router.post("/keys", openapi_extra=documented(KeyCreate))
    def create_key(
        tenant: Annotated[Tenant, Depends(caller.admin)], body: Annotated[KeyCreate, Depends(read_body)]
    ) -> KeyWithSecret:
        """Make a key, which is told this once. Whatever its Idempotency-Key, sent again it makes another."""
        row, secret = keys.create_for(
            tenant, name=body.name, expires_days=body.expires_days, scopes=body.scopes
        )
        return KeyWithSecret(**_key(row).model_dump(), key=secret)

    @router.delete("/keys/{key_id}")
    def revoke_key(tenant: Annotated[Tenant, Depends(caller.admin)], key_id: str) -> KeyObject:
        """Close a key at once and for good."""
        return _key(keys.revoke_of(tenant.id, key_id))

    @router.get("/audit")
    def read_audit(
        tenant: Annotated[Tenant, Depends(caller.admin)],
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: str | None = None,
    ) -> AuditList:
        """Who did what to the tenant's objects, newest first."""
        page = audit.read(tenant.id, limit=limit, after=after)
        data = [_entry(row) for row in page.rows]
        return AuditList(data=data, **ends(data), has_more=page.has_more)

    return router


def _key(row: KeyRow) -> KeyObject:
    return KeyObject(
        id=row.id,
        name=row.name,
        prefix=row.prefix,
        scopes=list(row.scopes),
        created_at=unix(row.created_at),
        expires_at=unix_or_none(row.expires_at),
        revoked_at=unix_or_none(row.revoked_at),
        last_used_at=unix_or_none(row.last_used_at),
    )


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        id=entry_name(row.id),
        at=unix(row.at),
        action=row.action,
        object_id=row.object_id,
        key_id=row.key_id,
        request_id=row.request_id,
        details=dict(row.details) if row.details else None,
    )
