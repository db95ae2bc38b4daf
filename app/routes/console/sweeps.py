"""Pages of sweeps: the list, stuck ones first; one with its runs; and what a run changed."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from app.console.sessions import Viewer
from app.console.sweeps import ChangeView, SweepView, change_views, is_stuck, sweep_view
from app.console.thumbnails import SMALL
from app.routes.console.desk import Desk, page_router, see
from app.services import Services
from app.store.sweep_items import ChangeRow
from app.store.sweeps import SweepRow
from app.sweeps.questions import custom_id, split_id

SWEEPS, RUNS, CHANGES, FEW_CHANGES = 25, 20, 50, 8


def sweep_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/sweeps")
    reader, writer = Depends(desk.doors.read), Depends(desk.doors.write)
    sweeps = services.sweeps

    @router.get("")
    def sweep_list(
        request: Request, viewer: Annotated[Viewer, reader], after: str | None = None
    ) -> HTMLResponse:
        page = sweeps.list(viewer.tenant.id, limit=SWEEPS, after=after)
        board = services.sweep_board.read(viewer.tenant.id, page.rows)
        words = desk.words(request)

        def viewed(rows: Sequence[SweepRow]) -> list[SweepView]:
            return [sweep_view(one, board.runs.get(one.id), words) for one in rows]

        return desk.page(
            request,
            viewer,
            "sweeps/list.html",
            stuck=viewed(board.stuck),
            sweeps=viewed(page.rows),
            has_more=page.has_more,
            after=after,
        )

    @router.get("/{sweep_id}")
    def sweep(
        request: Request, viewer: Annotated[Viewer, reader], sweep_id: str, after: str | None = None
    ) -> HTMLResponse:
        tenant_id = viewer.tenant.id
        found = sweeps.read(tenant_id, sweep_id)
        runs = sweeps.runs(tenant_id, sweep_id, limit=RUNS, after=after)
        newest = services.sweep_board.newest(found)
        ended = (
            next((run for run in runs.rows if run.ended_at and run.differing), None) if not after else None
        )
        changes = (
            sweeps.diff(tenant_id, sweep_id, ended.id, limit=FEW_CHANGES, after=("", "")).rows
            if ended
            else ()
        )
        return desk.page(
            request,
            viewer,
            "sweeps/sweep.html",
            view=sweep_view(found, newest, desk.words(request)),
            runs=runs.rows,
            has_more=runs.has_more,
            after=after,
            compared=ended,
            changes=pictured(viewer, found, changes),
            is_stuck=is_stuck,
        )

    @router.get("/{sweep_id}/runs/{run_id}")
    def run_page(
        request: Request, viewer: Annotated[Viewer, reader], sweep_id: str, run_id: str, after: str = ""
    ) -> HTMLResponse:
        tenant_id = viewer.tenant.id
        found, run = sweeps.read(tenant_id, sweep_id), sweeps.read_run(tenant_id, sweep_id, run_id)
        page = sweeps.diff(tenant_id, sweep_id, run_id, limit=CHANGES, after=split_id(after))
        last = page.rows[-1] if page.has_more else None
        return desk.page(
            request,
            viewer,
            "sweeps/run.html",
            sweep=found,
            run=run,
            stuck=is_stuck(run),
            changes=pictured(viewer, found, page.rows),
            after=after,
            last=custom_id(last.key, last.question) if last else None,
        )

    @router.post("/{sweep_id}/pause")
    def pause(viewer: Annotated[Viewer, writer], sweep_id: str) -> RedirectResponse:
        sweeps.pause(viewer.tenant.id, sweep_id)
        return see(f"/sweeps/{sweep_id}")

    @router.post("/{sweep_id}/resume")
    def resume(viewer: Annotated[Viewer, writer], sweep_id: str) -> RedirectResponse:
        sweeps.resume(viewer.tenant.id, sweep_id)
        return see(f"/sweeps/{sweep_id}")

    @router.post("/{sweep_id}/run")
    def run(viewer: Annotated[Viewer, writer], sweep_id: str) -> RedirectResponse:
        sweeps.run(viewer.tenant.id, sweep_id)
        return see(f"/sweeps/{sweep_id}")

    def pictured(viewer: Viewer, sweep: SweepRow, changes: Sequence[ChangeRow]) -> list[ChangeView]:
        found = services.sweep_board.pictures(sweep, [one.key for one in changes]) if changes else {}
        return change_views(changes, found, services.thumbnails.linker(viewer.tenant.id, SMALL))

    return router
