"""Webhook endpoints over HTTP, as the official SDK asks for them, and the log of what was sent (ours)."""

from functools import partial
from typing import Annotated, get_args

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query

from app.auth import Tenant
from app.errors import Overloaded
from app.posting import Posted
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.render import ends, unix, unix_or_none
from app.routes.strict import STRICT
from app.schemas.webhooks import (
    DeliveryList,
    DeliveryObject,
    EndpointCreate,
    EndpointDeleted,
    EndpointList,
    EndpointObject,
    EndpointTest,
    EndpointTestResult,
    EndpointUpdate,
    EndpointWithSecret,
    EventType,
    EventTypeList,
    SecretRotate,
)
from app.shares import Places
from app.signing import hint
from app.store.events import DeliveryRow
from app.store.webhooks import EndpointRow
from app.webhooks import Webhooks

MAX_BODY_BYTES = 64 * 1024
# At once; each holds a thread until its receiver answers. With those of other requests they would freeze all.
TESTS = 8
RETRY_AFTER_S = 5
Limit = Annotated[int, Query(ge=1, le=100)]


def webhook_routes(*, webhooks: Webhooks, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["webhooks"], dependencies=STRICT)
    creation = json_body(EndpointCreate, max_bytes=MAX_BODY_BYTES)
    change = json_body(EndpointUpdate, max_bytes=MAX_BODY_BYTES, empty=b"{}")
    rotation = json_body(SecretRotate, max_bytes=MAX_BODY_BYTES, empty=b"{}")
    trial = json_body(EndpointTest, max_bytes=MAX_BODY_BYTES)
    trials = Trials(webhooks)

    @router.get("/webhook_event_types")
    def list_event_types(_: Annotated[Tenant, Depends(caller.admin)]) -> EventTypeList:
        """What an endpoint may be told of."""
        return EventTypeList(data=list(get_args(EventType)))

    @router.post("/webhook_endpoints", openapi_extra=documented(EndpointCreate))
    def create(
        tenant: Annotated[Tenant, Depends(caller.admin)], body: Annotated[EndpointCreate, Depends(creation)]
    ) -> EndpointWithSecret:
        """Have events sent to a URL. The answer holds the secret that signs them, this once."""
        made = webhooks.create(tenant.id, name=body.name, url=body.url, event_types=body.event_types)
        return _with_secret(made)

    @router.get("/webhook_endpoints")
    def list_endpoints(
        tenant: Annotated[Tenant, Depends(caller.admin)], limit: Limit = 20, after: str | None = None
    ) -> EndpointList:
        """The endpoints, newest first."""
        page = webhooks.list(tenant.id, limit=limit, after=after)
        data = [_endpoint(one) for one in page.rows]
        return EndpointList(data=data, **ends(data), has_more=page.has_more)

    @router.get("/webhook_endpoints/{webhook_endpoint_id}")
    def read(tenant: Annotated[Tenant, Depends(caller.admin)], webhook_endpoint_id: str) -> EndpointObject:
        """One endpoint, and whether it takes what is sent."""
        return _endpoint(webhooks.read(tenant.id, webhook_endpoint_id))

    @router.post("/webhook_endpoints/{webhook_endpoint_id}", openapi_extra=documented(EndpointUpdate))
    def update(
        tenant: Annotated[Tenant, Depends(caller.admin)],
        webhook_endpoint_id: str,
        body: Annotated[EndpointUpdate, Depends(change)],
    ) -> EndpointObject:
        """Change what is given; an endpoint that rested is tried again."""
        changed = webhooks.update(
            tenant.id, webhook_endpoint_id, name=body.name, url=body.url, event_types=body.event_types
        )
        return _endpoint(changed)

    @router.delete("/webhook_endpoints/{webhook_endpoint_id}")
    def delete(tenant: Annotated[Tenant, Depends(caller.admin)], webhook_endpoint_id: str) -> EndpointDeleted:
        """Delete an endpoint, with what is on its way to it and its log."""
        webhooks.delete(tenant.id, webhook_endpoint_id)
        return EndpointDeleted(id=webhook_endpoint_id)

    @router.post(
        "/webhook_endpoints/{webhook_endpoint_id}/rotate_secret", openapi_extra=documented(SecretRotate)
    )
    def rotate_secret(
        tenant: Annotated[Tenant, Depends(caller.admin)],
        webhook_endpoint_id: str,
        body: Annotated[SecretRotate, Depends(rotation)],
    ) -> EndpointWithSecret:
        """Give it a new secret; for a day the old one may sign beside it."""
        keep = body.keep_old_secret_active_for_24_hours
        return _with_secret(webhooks.rotate(tenant.id, webhook_endpoint_id, keep_old=keep))

    @router.post("/webhook_endpoints/{webhook_endpoint_id}/test", openapi_extra=documented(EndpointTest))
    async def test(
        tenant: Annotated[Tenant, Depends(caller.admin)],
        webhook_endpoint_id: str,
        body: Annotated[EndpointTest, Depends(trial)],
    ) -> EndpointTestResult:
        """Send a sample event now, and tell how it was answered."""
        posted = await trials.send(tenant.id, webhook_endpoint_id, body.event_type)
        return EndpointTestResult(
            webhook_endpoint_id=webhook_endpoint_id,
            event_type=body.event_type,
            status_code=posted.status,
            success=posted.taken,
        )

    @router.get("/webhook_endpoints/{webhook_endpoint_id}/deliveries")
    def list_deliveries(
        tenant: Annotated[Tenant, Depends(caller.admin)],
        webhook_endpoint_id: str,
        limit: Limit = 20,
        after: str | None = None,
    ) -> DeliveryList:
        """(ours) What was sent to it or will be, newest first."""
        page = webhooks.deliveries(tenant.id, webhook_endpoint_id, limit=limit, after=after)
        data = [_delivery(one) for one in page.rows]
        return DeliveryList(data=data, **ends(data), has_more=page.has_more)

    @router.post("/webhook_endpoints/{webhook_endpoint_id}/deliveries/{delivery_id}/redeliver")
    def redeliver(
        tenant: Annotated[Tenant, Depends(caller.admin)], webhook_endpoint_id: str, delivery_id: str
    ) -> DeliveryObject:
        """(ours) Send one of them once more, now."""
        return _delivery(webhooks.redeliver(tenant.id, webhook_endpoint_id, delivery_id))

    return router


class Trials:
    """Sends sample events, so many at once as leave threads for other requests."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        self._places = Places(TESTS)
        self._threads = anyio.CapacityLimiter(TESTS)

    async def send(self, tenant_id: str, endpoint_id: str, event_type: str) -> Posted:
        """How the receiver answered; `Overloaded` while too many others wait for theirs."""
        send = partial(self._webhooks.test, tenant_id, endpoint_id, event_type)
        with self._places.held(tenant_id, _too_many_tests()):
            return await run_sync(send, limiter=self._threads)


def _too_many_tests() -> Overloaded:
    message = "Other tests of webhooks are under way: wait until one is over."
    return Overloaded(message, code="too_many_webhook_tests", retry_after_s=RETRY_AFTER_S)


def _endpoint(row: EndpointRow) -> EndpointObject:
    return EndpointObject(
        id=row.id,
        name=row.name,
        url=row.url,
        event_types=list(row.event_types),
        created_at=unix(row.created_at),
        updated_at=unix(row.updated_at),
        signing_secret_hint=hint(row.secret),
        status=row.status,
        failures=row.failures,
    )


def _with_secret(row: EndpointRow) -> EndpointWithSecret:
    return EndpointWithSecret(**_endpoint(row).model_dump(), signing_secret=row.secret)


def _delivery(row: DeliveryRow) -> DeliveryObject:
    return DeliveryObject(
        id=row.id,
        event_id=row.event_id,
        event_type=row.type,
        status=row.state,
        attempt=row.attempt,
        next_attempt_at=unix(row.due_at) if row.state == "pending" else None,
        status_code=row.status_code,
        error=row.error,
        created_at=unix(row.created_at),
        ended_at=unix_or_none(row.ended_at),
    )
