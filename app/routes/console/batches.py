"""Pages of batches: the list, and one of them while it runs and after."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse

from app.console.batches import BatchView, batch_view, state_counts
from app.console.sessions import Viewer
from app.exports.opening import ExportWish, Format, Rows
from app.retrying import RetryWish
from app.routes.console.desk import Desk, page_router, see
from app.routes.exports import sent
from app.services import Services
from app.store.batches import BatchRow

ROWS = 25
OTHERS = 30  # to compare a batch with, the newest


def batch_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/batches")
    reader, writer = Depends(desk.doors.read), Depends(desk.doors.write)

    @router.get("")
    def batch_list(
        request: Request, viewer: Annotated[Viewer, reader], after: str | None = None
    ) -> HTMLResponse:
        page = services.batches.list(viewer.tenant.id, limit=ROWS, after=after)
        rows = [viewed(batch) for batch in page.rows]
        return desk.page(
            request, viewer, "batches/list.html", batches=rows, has_more=page.has_more, after=after
        )

    @router.get("/{batch_id}")
    def batch(request: Request, viewer: Annotated[Viewer, reader], batch_id: str) -> HTMLResponse:
        found = services.batches.read(viewer.tenant.id, batch_id)
        return desk.page(
            request,
            viewer,
            "batches/batch.html",
            view=viewed(found),
            states=state_counts(found, services.progress.under_way(batch_id)),
            errors=services.progress.errors(viewer.tenant.id, batch_id),
            formats=list(Format),
            others=[
                one
                for one in services.batches.list(viewer.tenant.id, limit=OTHERS).rows
                if one.id != batch_id
            ],
        )

    @router.post("/{batch_id}/cancel")
    def cancel(viewer: Annotated[Viewer, writer], batch_id: str) -> RedirectResponse:
        services.batches.cancel(viewer.tenant.id, batch_id)
        return see(f"/batches/{batch_id}")

    @router.post("/{batch_id}/retry")
    def retry(viewer: Annotated[Viewer, writer], batch_id: str) -> RedirectResponse:
        """Its failed jobs once more; pressed twice, one batch."""
        made = services.retries.submit(viewer.tenant.id, batch_id, RetryWish(), is_retry=True)
        return see(f"/batches/{made.id}")

    @router.get("/{batch_id}/export")
    def export(
        viewer: Annotated[Viewer, reader], batch_id: str, format: Format = Format.CSV, rows: Rows = Rows.ALL
    ) -> StreamingResponse:
        return sent(services.exports.open(viewer.tenant.id, batch_id, ExportWish(format, rows)))

    def viewed(batch: BatchRow) -> BatchView:
        return batch_view(batch, services.settings.prices, now=datetime.now(UTC))

    return router
