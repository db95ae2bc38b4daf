"""Sweeps over HTTP (ours): made, changed, paused, run, back-filled, compared."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from app.auth import Tenant
from app.routes.bodies import IdempotencyKey, documented, json_body
from app.routes.caller import Caller
from app.routes.render import ends, unix, unix_or_none
from app.routes.strict import STRICT
from app.schemas.sweeps import (
    BackfillObject,
    ChangeList,
    ChangeObject,
    ItemCounts,
    QuestionCounts,
    RunError,
    RunList,
    RunObject,
    SweepBackfill,
    SweepCreate,
    SweepDeleted,
    SweepList,
    SweepObject,
    SweepUpdate,
)
from app.store.sweep_items import ChangeRow
from app.store.sweep_runs import RunRow
from app.store.sweeps import SweepRow
from app.sweeps.desk import Sweeps
from app.sweeps.questions import custom_id, split_id

# A hundred questions with their schemas.
MAX_BODY_BYTES = 4 * 1024 * 1024
Limit = Annotated[int, Query(ge=1, le=100)]
# What null takes away; of the others it is what is left out.
REMOVABLE = ("cron", "destination")


def sweep_routes(*, sweeps: Sweeps, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"], dependencies=STRICT)
    _add_sweeps(router, sweeps, caller)
    _add_switches(router, sweeps, caller)
    _add_runs(router, sweeps, caller)
    return router


def _add_sweeps(router: APIRouter, sweeps: Sweeps, caller: Caller) -> None:
    creation = json_body(SweepCreate, max_bytes=MAX_BODY_BYTES)
    change = json_body(SweepUpdate, max_bytes=MAX_BODY_BYTES, empty=b"{}")

    @router.post("", openapi_extra=documented(SweepCreate))
    def create(
        tenant: Annotated[Tenant, Depends(caller.write)],
        body: Annotated[SweepCreate, Depends(creation)],
        idempotency_key: IdempotencyKey = None,
    ) -> SweepObject:
        """Have a source gone through again and again: what to ask of its images, and when."""
        wish = body.model_dump(by_alias=True)
        return _sweep(sweeps.create(tenant.id, wish, idempotency_key=idempotency_key))

    @router.get("")
    def list_sweeps(
        tenant: Annotated[Tenant, Depends(caller.read)], limit: Limit = 20, after: str | None = None
    ) -> SweepList:
        """The sweeps, newest first."""
        page = sweeps.list(tenant.id, limit=limit, after=after)
        data = [_sweep(one) for one in page.rows]
        return SweepList(data=data, **ends(data), has_more=page.has_more)

    @router.get("/{sweep_id}")
    def read(tenant: Annotated[Tenant, Depends(caller.read)], sweep_id: str) -> SweepObject:
        """One sweep, and when it is due next."""
        return _sweep(sweeps.read(tenant.id, sweep_id))

    @router.patch("/{sweep_id}", openapi_extra=documented(SweepUpdate))
    def update(
        tenant: Annotated[Tenant, Depends(caller.write)],
        sweep_id: str,
        body: Annotated[SweepUpdate, Depends(change)],
    ) -> SweepObject:
        """Change what is given. Other questions, another model or body need another `policy_version`."""
        return _sweep(sweeps.update(tenant.id, sweep_id, _changes(body)))

    @router.delete("/{sweep_id}")
    def delete(tenant: Annotated[Tenant, Depends(caller.write)], sweep_id: str) -> SweepDeleted:
        """Delete a sweep with its runs; their batches stay, open ones are cancelled."""
        sweeps.delete(tenant.id, sweep_id)
        return SweepDeleted(id=sweep_id)


def _add_switches(router: APIRouter, sweeps: Sweeps, caller: Caller) -> None:
    backfilling = json_body(SweepBackfill, max_bytes=MAX_BODY_BYTES)

    @router.post("/{sweep_id}/pause")
    def pause(tenant: Annotated[Tenant, Depends(caller.write)], sweep_id: str) -> SweepObject:
        """Begin no more runs by the clock; the one that runs goes on."""
        return _sweep(sweeps.pause(tenant.id, sweep_id))

    @router.post("/{sweep_id}/resume")
    def resume(tenant: Annotated[Tenant, Depends(caller.write)], sweep_id: str) -> SweepObject:
        """Go on with the next due time."""
        return _sweep(sweeps.resume(tenant.id, sweep_id))

    @router.post("/{sweep_id}/run")
    def run(
        tenant: Annotated[Tenant, Depends(caller.write)],
        sweep_id: str,
        idempotency_key: IdempotencyKey = None,
    ) -> RunObject:
        """A run now, or as soon as the one that is open has ended; of a paused sweep as well.

        Sent again with the same `Idempotency-Key`, it gives the same run.
        """
        return _run(sweeps.run(tenant.id, sweep_id, idempotency_key=idempotency_key))

    @router.post("/{sweep_id}/backfill", openapi_extra=documented(SweepBackfill))
    def backfill(
        tenant: Annotated[Tenant, Depends(caller.write)],
        sweep_id: str,
        body: Annotated[SweepBackfill, Depends(backfilling)],
    ) -> BackfillObject:
        """A run for each past due time of a range that has none."""
        made = sweeps.backfill(tenant.id, sweep_id, body.start, body.end)
        return BackfillObject(runs=len(made), run_ids=[one.id for one in made])


def _add_runs(router: APIRouter, sweeps: Sweeps, caller: Caller) -> None:
    @router.get("/{sweep_id}/runs")
    def list_runs(
        tenant: Annotated[Tenant, Depends(caller.read)],
        sweep_id: str,
        limit: Limit = 20,
        after: str | None = None,
    ) -> RunList:
        """The runs of a sweep, newest first."""
        page = sweeps.runs(tenant.id, sweep_id, limit=limit, after=after)
        data = [_run(one) for one in page.rows]
        return RunList(data=data, **ends(data), has_more=page.has_more)

    @router.get("/{sweep_id}/runs/{run_id}")
    def read_run(tenant: Annotated[Tenant, Depends(caller.read)], sweep_id: str, run_id: str) -> RunObject:
        """Where a run is, what it found and what it asked."""
        return _run(sweeps.read_run(tenant.id, sweep_id, run_id))

    @router.get("/{sweep_id}/runs/{run_id}/diff")
    def diff(
        tenant: Annotated[Tenant, Depends(caller.read)],
        sweep_id: str,
        run_id: str,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        after: str | None = None,
    ) -> ChangeList:
        """Answers that are other than those before the run, by item and question, behind the id `after`."""
        page = sweeps.diff(tenant.id, sweep_id, run_id, limit=limit, after=split_id(after or ""))
        data = [_change(one) for one in page.rows]
        return ChangeList(data=data, **ends(data), has_more=page.has_more)


def _changes(body: SweepUpdate) -> Mapping[str, Any]:
    given = body.model_dump(by_alias=True, exclude_unset=False)
    return {
        name: given[name] for name in body.model_fields_set if given[name] is not None or name in REMOVABLE
    }


def _sweep(row: SweepRow) -> SweepObject:
    return SweepObject(
        **{
            name: getattr(row, name)
            for name in SweepObject.model_fields
            if name not in ("object", "status", "next_due_at", "created_at", "updated_at")
        },
        status="paused" if row.paused_at else "active",
        next_due_at=None if row.paused_at else unix_or_none(row.next_due_at),
        created_at=unix(row.created_at),
        updated_at=unix(row.updated_at),
    )


def _run(row: RunRow) -> RunObject:
    items = {name: getattr(row, name) for name in ItemCounts.model_fields}
    requests = {name: getattr(row, name) for name in QuestionCounts.model_fields}
    return RunObject(
        id=row.id,
        sweep_id=row.sweep_id,
        kind=row.kind,
        due_at=unix(row.due_at),
        status=row.state,
        stalled=row.stalled_at is not None and row.ended_at is None,
        policy_version=row.policy_version,
        batch_ids=list(row.batch_ids),
        item_counts=ItemCounts(**items),
        request_counts=QuestionCounts(**requests),
        error=RunError(code=row.error_code, message=row.error_message or "") if row.error_code else None,
        created_at=unix(row.created_at),
        started_at=unix_or_none(row.started_at),
        ended_at=unix_or_none(row.ended_at),
    )


def _change(row: ChangeRow) -> ChangeObject:
    return ChangeObject(
        id=custom_id(row.key, row.question),
        item=row.key,
        question=row.question,
        before=row.before,
        after=row.after,
    )
