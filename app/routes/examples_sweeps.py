"""Requests and answers of sweeps that the API's own description shows, by operation."""

from collections.abc import Mapping
from typing import Any

from app.routes.examples import NOW

WISH = {
    "name": "policy-nightly",
    "source": {"kind": "bucket", "prefix": "s3://photos/incoming/"},
    "questions": [
        {"name": "weapon", "ask": "Is a weapon shown?", "choices": ["yes", "no"]},
        {"name": "text", "ask": "Which text is shown?"},
    ],
    "policy_version": "2026-11",
    "cron": "30 2 * * *",
    "zone": "Europe/Berlin",
}
SWEEP = {
    **WISH,
    "id": "sweep_6f1c2a9de4b04d3f",
    "object": "sweep",
    "model": "demo",
    "body": {"max_tokens": 32},
    "destination": None,
    "completion_window": "24h",
    "batch": {"priority": "standard", "cache": None},
    "alert_after_s": 3600,
    "status": "active",
    "next_due_at": NOW + 3600,
    "created_at": NOW,
    "updated_at": NOW,
}
RUN = {
    "id": "run_6f1c2a9de4b04d3f",
    "object": "sweep.run",
    "sweep_id": SWEEP["id"],
    "kind": "scheduled",
    "due_at": NOW,
    "status": "completed",
    "stalled": False,
    "policy_version": "2026-11",
    "batch_ids": ["batch_6f1c2a9de4b04d3f"],
    "item_counts": {"listed": 10_000, "new": 100, "changed": 100, "unchanged": 9_800, "deleted": 100},
    "request_counts": {"asked": 400, "completed": 400, "failed": 0, "differing": 12},
    "error": None,
    "created_at": NOW,
    "started_at": NOW + 1,
    "ended_at": NOW + 300,
}
CHANGE = {
    "id": "incoming/17.jpg:weapon",
    "object": "sweep.change",
    "item": "incoming/17.jpg",
    "question": "weapon",
    "before": "no",
    "after": "yes",
}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "sweeps_create": {"nightly": WISH},
    "sweeps_update": {"policy": {"policy_version": "2026-12", "questions": WISH["questions"][:1]}},
    "sweeps_backfill": {"week": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-08T00:00:00Z"}},
}


def _page(*data: Mapping[str, Any]) -> Mapping[str, Any]:
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return {"object": "list", "data": list(data), **ends, "has_more": False}


ANSWERS: Mapping[str, Any] = {
    "sweeps_create": SWEEP,
    "sweeps_list": _page(SWEEP),
    "sweeps_read": SWEEP,
    "sweeps_update": {**SWEEP, "policy_version": "2026-12", "questions": WISH["questions"][:1]},
    "sweeps_delete": {"id": SWEEP["id"], "object": "sweep", "deleted": True},
    "sweeps_pause": {**SWEEP, "status": "paused", "next_due_at": None},
    "sweeps_resume": SWEEP,
    "sweeps_run": {**RUN, "kind": "manual", "status": "waiting", "started_at": None, "ended_at": None},
    "sweeps_backfill": {"object": "sweep.backfill", "runs": 1, "run_ids": [RUN["id"]]},
    "sweeps_list_runs": _page(RUN),
    "sweeps_read_run": RUN,
    "sweeps_diff": _page(CHANGE),
}
