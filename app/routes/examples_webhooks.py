"""Requests and answers of webhooks that the API's own description shows, by operation."""

from collections.abc import Mapping
from typing import Any

from app.routes.examples import NOW

ENDPOINT = {
    "id": "whe_6f1c2a9de4b04d3f",
    "object": "webhook_endpoint",
    "name": "catalog",
    "url": "https://shop.example/vqueue",
    "event_types": ["batch.completed", "batch.failed"],
    "created_at": NOW,
    "updated_at": NOW,
    "signing_secret_hint": "whsec_...aSw=",
    "status": "active",
    "failures": 0,
}
ENDPOINT_WITH_SECRET = {**ENDPOINT, "signing_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
DELIVERY = {
    "id": "whd_6f1c2a9de4b04d3f",
    "object": "webhook_delivery",
    "event_id": "evt_6f1c2a9de4b04d3f",
    "event_type": "batch.completed",
    "status": "pending",
    "attempt": 2,
    "next_attempt_at": NOW + 15,
    "status_code": 503,
    "error": "answered 503",
    "created_at": NOW,
    "ended_at": None,
}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "webhooks_create": {"ends": {key: ENDPOINT[key] for key in ("name", "url", "event_types")}},
    "webhooks_update": {"types": {"event_types": ["batch.completed", "batch.progress"]}},
    "webhooks_rotate_secret": {"overlapping": {"keep_old_secret_active_for_24_hours": True}},
    "webhooks_test": {"completed": {"event_type": "batch.completed"}},
}


def _page(*data: Mapping[str, Any]) -> Mapping[str, Any]:
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return {"object": "list", "data": list(data), **ends, "has_more": False}


ANSWERS: Mapping[str, Any] = {
    "webhooks_list_event_types": {"object": "list", "data": ["batch.completed", "batch.failed"]},
    "webhooks_create": ENDPOINT_WITH_SECRET,
    "webhooks_rotate_secret": ENDPOINT_WITH_SECRET,
    "webhooks_list_endpoints": _page(ENDPOINT),
    "webhooks_read": ENDPOINT,
    "webhooks_update": ENDPOINT,
    "webhooks_delete": {"id": ENDPOINT["id"], "object": "webhook_endpoint.deleted", "deleted": True},
    "webhooks_test": {
        "object": "webhook_endpoint.test",
        "webhook_endpoint_id": ENDPOINT["id"],
        "event_type": "batch.completed",
        "status_code": 204,
        "success": True,
    },
    "webhooks_list_deliveries": _page(DELIVERY),
    "webhooks_redeliver": DELIVERY,
}
