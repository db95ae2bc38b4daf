"""The calls for sweeps: made, changed, paused, run, back-filled, compared."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from vqueue.calls import Call, as_model, post
from vqueue.inputs import BatchWishes, SweepChanges, SweepQuestion, SweepSource
from vqueue.sweep_types import Backfill, ChangePage, Sweep, SweepPage, SweepRun, SweepRunPage


def create_sweep(
    name: str,
    *,
    source: SweepSource,
    questions: Sequence[SweepQuestion],
    policy_version: str,
    model: str | None = None,
    body: Mapping[str, Any] | None = None,
    cron: str | None = None,
    zone: str | None = None,
    destination: Mapping[str, str] | None = None,
    completion_window: str | None = None,
    batch: BatchWishes | None = None,
    alert_after_s: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Sweep]:
    """Have a source gone through by the clock (`cron` in `zone`), or by `run_sweep` only."""
    wish = {
        "name": name,
        "source": source,
        "questions": list(questions),
        "policy_version": policy_version,
        "model": model,
        "body": body,
        "cron": cron,
        "zone": zone,
        "destination": destination,
        "completion_window": completion_window,
        "batch": batch,
        "alert_after_s": alert_after_s,
    }
    return post("/sweeps", wish, as_model(Sweep), idempotency_key)


def sweep(sweep_id: str) -> Call[Sweep]:
    return Call("GET", f"/sweeps/{sweep_id}", as_model(Sweep))


def sweeps(*, limit: int = 20, after: str | None = None) -> Call[SweepPage]:
    """A page of sweeps, newest first, behind the one with the id `after`."""
    return Call("GET", "/sweeps", as_model(SweepPage), params=_page(limit, after))


def update_sweep(sweep_id: str, changes: SweepChanges) -> Call[Sweep]:
    """Change what is given; None takes `cron` and `destination` away.

    Other questions, another model or body need another `policy_version` with them.
    """
    return Call("PATCH", f"/sweeps/{sweep_id}", as_model(Sweep), json=changes)


def delete_sweep(sweep_id: str) -> Call[None]:
    """Delete a sweep with its runs; their batches stay, open ones are cancelled."""
    return Call("DELETE", f"/sweeps/{sweep_id}", lambda _: None)


def pause_sweep(sweep_id: str) -> Call[Sweep]:
    """Begin no more runs by the clock; the one that runs goes on."""
    return Call("POST", f"/sweeps/{sweep_id}/pause", as_model(Sweep))


def resume_sweep(sweep_id: str) -> Call[Sweep]:
    """Go on with the next due time."""
    return Call("POST", f"/sweeps/{sweep_id}/resume", as_model(Sweep))


def run_sweep(sweep_id: str, *, idempotency_key: str | None = None) -> Call[SweepRun]:
    """A run now, or as soon as the one that is open has ended."""
    return post(f"/sweeps/{sweep_id}/run", {}, as_model(SweepRun), idempotency_key)


def backfill_sweep(sweep_id: str, start: datetime, end: datetime) -> Call[Backfill]:
    """A run for each past due time of a range that has none; both with a time zone, both included."""
    span = {"from": start.isoformat(), "to": end.isoformat()}
    return Call("POST", f"/sweeps/{sweep_id}/backfill", as_model(Backfill), json=span)


def sweep_runs(sweep_id: str, *, limit: int = 20, after: str | None = None) -> Call[SweepRunPage]:
    """A page of a sweep's runs, newest first."""
    return Call("GET", f"/sweeps/{sweep_id}/runs", as_model(SweepRunPage), params=_page(limit, after))


def sweep_run(sweep_id: str, run_id: str) -> Call[SweepRun]:
    return Call("GET", f"/sweeps/{sweep_id}/runs/{run_id}", as_model(SweepRun))


def sweep_diff(sweep_id: str, run_id: str, *, limit: int = 100, after: str | None = None) -> Call[ChangePage]:
    """A page of the answers of a run that are other than those before it, by item and question."""
    path = f"/sweeps/{sweep_id}/runs/{run_id}/diff"
    return Call("GET", path, as_model(ChangePage), params=_page(limit, after))


def _page(limit: int, after: str | None) -> dict[str, str | int]:
    return {"limit": limit} | ({"after": after} if after else {})
