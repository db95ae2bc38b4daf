"""Webhook endpoints: made, changed, tested and deleted by their tenants, with the log of what was sent."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence

import structlog

from app.actor import actor
from app.db import Sessions, transaction
from app.errors import InvalidWork, NotFound, RequestError, WorkError
from app.pages import Page, page_of
from app.posting import Posted, Poster
from app.signing import new_secret, signed_headers
from app.store import audit, events
from app.store import webhooks as store
from app.store.events import DeliveryRow
from app.store.webhooks import EndpointRow

log = structlog.get_logger()

MOST_ENDPOINTS = 100  # of a tenant
KEEP_OLD_S = 24 * 3600
TEST_S = 5.0  # for a receiver to take a test event, while a thread and its client wait
HEADERS = {"Content-Type": "application/json", "User-Agent": "vqueue-webhooks/1"}


class Webhooks:
    def __init__(self, *, sessions: Sessions, poster: Poster) -> None:
        self._sessions = sessions
        self._poster = poster

    def create(self, tenant_id: str, *, name: str, url: str, event_types: Sequence[str]) -> EndpointRow:
        """A new endpoint, whose secret is told this once."""
        self._check(url)
        with transaction(self._sessions) as session:
            endpoint = store.insert_endpoint(
                session,
                endpoint_id=f"whe_{secrets.token_hex(16)}",
                tenant_id=tenant_id,
                name=name,
                url=url,
                event_types=list(dict.fromkeys(event_types)),
                secret=new_secret(),
                most=MOST_ENDPOINTS,
            )
            if endpoint is not None:
                audit.note(
                    session, actor(), "webhook.created", endpoint.id, {"url": url}, tenant_id=tenant_id
                )
        if endpoint is None:
            raise RequestError(
                f"There are {MOST_ENDPOINTS} webhook endpoints, the most there may be: delete one first.",
                code="too_many_webhook_endpoints",
            )
        log.info("webhook_endpoint_created", endpoint=endpoint.id)
        return endpoint

    def read(self, tenant_id: str, endpoint_id: str) -> EndpointRow:
        with transaction(self._sessions) as session:
            return _found(store.read_endpoint(session, tenant_id, endpoint_id), endpoint_id)

    def list(self, tenant_id: str, *, limit: int, after: str | None) -> Page[EndpointRow]:
        """Newest first."""
        with transaction(self._sessions) as session:
            cursor = _found(store.read_endpoint(session, tenant_id, after), after) if after else None
            rows = store.list_endpoints(session, tenant_id, limit=limit + 1, after=cursor)
        return page_of(rows, limit)

    def update(
        self,
        tenant_id: str,
        endpoint_id: str,
        *,
        name: str | None,
        url: str | None,
        event_types: Sequence[str] | None,
    ) -> EndpointRow:
        """Change what is not None; an endpoint that rests or is gone is tried again."""
        if url is not None:
            self._check(url)
        types = None if event_types is None else list(dict.fromkeys(event_types))
        with transaction(self._sessions) as session:
            changed = store.update_endpoint(
                session, tenant_id, endpoint_id, name=name, url=url, event_types=types
            )
            endpoint = _found(changed, endpoint_id)
            audit.note(
                session, actor(), "webhook.updated", endpoint_id, {"url": endpoint.url}, tenant_id=tenant_id
            )
        return endpoint

    def rotate(self, tenant_id: str, endpoint_id: str, *, keep_old: bool) -> EndpointRow:
        """Give it a new secret; the old one signs beside it for a day, or no more."""
        with transaction(self._sessions) as session:
            changed = store.rotate_secret(
                session,
                tenant_id,
                endpoint_id,
                secret=new_secret(),
                keep_old_s=KEEP_OLD_S if keep_old else 0,
            )
            endpoint = _found(changed, endpoint_id)
            audit.note(session, actor(), "webhook.secret_rotated", endpoint_id, tenant_id=tenant_id)
        log.info("webhook_secret_rotated", endpoint=endpoint_id)
        return endpoint

    def delete(self, tenant_id: str, endpoint_id: str) -> None:
        """Send nothing there any more, what is under way excepted."""
        with transaction(self._sessions) as session:
            if not store.delete_endpoint(session, tenant_id, endpoint_id):
                raise _missing(endpoint_id)
            audit.note(session, actor(), "webhook.deleted", endpoint_id, tenant_id=tenant_id)
        log.info("webhook_endpoint_deleted", endpoint=endpoint_id)

    def test(self, tenant_id: str, endpoint_id: str, event_type: str) -> Posted:
        """Send a sample event at once; RequestError where no answer comes."""
        endpoint = self.read(tenant_id, endpoint_id)
        with transaction(self._sessions) as session:
            signing = store.read_secrets(session, endpoint_id)
        body = _sample(event_type)
        try:
            return send(self._poster, endpoint.url, body, signing, within_s=TEST_S)
        except WorkError as error:
            raise RequestError(
                f"The test event could not be sent: {error.message}", code=f"webhook_{error.code}"
            ) from error

    def deliveries(
        self, tenant_id: str, endpoint_id: str, *, limit: int, after: str | None
    ) -> Page[DeliveryRow]:
        """What was sent to an endpoint, the newest first."""
        with transaction(self._sessions) as session:
            _found(store.read_endpoint(session, tenant_id, endpoint_id), endpoint_id)
            cursor = _delivery(events.read_delivery(session, endpoint_id, after), after) if after else None
            rows = events.list_deliveries(session, endpoint_id, limit=limit + 1, after=cursor)
        return page_of(rows, limit)

    def redeliver(self, tenant_id: str, endpoint_id: str, delivery_id: str) -> DeliveryRow:
        """Have one of them sent once more, now, under the id that it had."""
        with transaction(self._sessions) as session:
            _found(store.read_endpoint(session, tenant_id, endpoint_id), endpoint_id)
            _delivery(events.read_delivery(session, endpoint_id, delivery_id), delivery_id)
            events.send_again(session, delivery_id)
            return _delivery(events.read_delivery(session, endpoint_id, delivery_id), delivery_id)

    def _check(self, url: str) -> None:
        try:
            self._poster.check(url)
        except InvalidWork as error:
            message = error.message.replace("image URL", "URL").partition(" Upload the image")[0]
            raise RequestError(message, code=error.code, param="url") from error


def send(
    poster: Poster,
    url: str,
    body: Mapping[str, object],
    signing: Sequence[str],
    *,
    within_s: float | None = None,
) -> Posted:
    """Sign and send an event; its id is the message's, by which a receiver knows one that came before."""
    content = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    signed = signed_headers(signing, str(body["id"]), int(time.time()), content)
    return poster.post(url, content, {**HEADERS, **signed}, within_s=within_s)


def _sample(event_type: str) -> Mapping[str, object]:
    data: dict[str, object] = {"id": "batch_test"}
    if event_type.startswith("sweep."):
        data = {"id": "run_test", "sweep_id": "sweep_test", "name": "test"}
    if event_type == "batch.progress":
        data |= {"percent": 50, "request_counts": {"total": 2, "completed": 1, "failed": 0}}
    return {
        "id": f"evt_test_{secrets.token_hex(12)}",
        "object": "event",
        "created_at": int(time.time()),
        "type": event_type,
        "data": data,
    }


def _found(endpoint: EndpointRow | None, endpoint_id: str) -> EndpointRow:
    if endpoint is None:
        raise _missing(endpoint_id)
    return endpoint


def _missing(endpoint_id: str) -> NotFound:
    return NotFound(
        f"No webhook endpoint has the id {endpoint_id!r}.",
        param="webhook_endpoint_id",
        code="webhook_endpoint_not_found",
    )


def _delivery(delivery: DeliveryRow | None, delivery_id: str) -> DeliveryRow:
    if delivery is None:
        raise NotFound(
            f"No delivery has the id {delivery_id!r}.", param="delivery_id", code="delivery_not_found"
        )
    return delivery
