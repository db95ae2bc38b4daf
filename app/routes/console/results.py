"""Pages of results: the jobs of a batch as cards."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from app.console.cards import cards
from app.console.filters import CODE, Asked, field_options
from app.console.paging import pager
from app.console.sessions import Viewer
from app.console.thumbnails import LARGE, SMALL
from app.ids import job_number
from app.routes.console.desk import Desk, page_router
from app.services import Services

MOST_ALONE = 20_000  # letters of a question that has a page to itself
LIVE_S = 5  # how often the cards of a running batch renew themselves


def result_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/batches/{batch_id}/results")
    reader = Depends(desk.doors.read)

    @router.get("")
    def results(
        request: Request,
        viewer: Annotated[Viewer, reader],
        batch_id: str,
        after: str = "",
        before: str = "",
    ) -> HTMLResponse:
        tenant = viewer.tenant.id
        batch = services.batches.read(tenant, batch_id)
        asked = Asked.of(request.query_params)
        at = job_number(before or after) if before or after else None
        found = services.results.find(tenant, batch_id, asked.filters(), at=at, backwards=bool(before))
        parts = services.results.cards(tenant, found.ids)
        errors = services.progress.errors(tenant, batch_id)
        counts = services.results.counts(batch_id, is_open=batch.is_open)
        return desk.page(
            request,
            viewer,
            "results/grid.html",
            batch=batch,
            asked=asked,
            cards=cards(parts, services.thumbnails.linker(tenant, SMALL)),
            found=found,
            pager=pager(found.ids, at=at, backwards=bool(before), resume=found.resume),
            fields=field_options(asked, counts),
            codes=[(f"{CODE}{one.code}", one.code, one.jobs) for one in errors],
            live_s=LIVE_S if batch.is_open and asked.text == "" else 0,
            has_confidence=batch.cascade is not None,
        )

    @router.get("/{job_id}")
    def result(
        request: Request, viewer: Annotated[Viewer, reader], batch_id: str, job_id: str
    ) -> HTMLResponse:
        """One job alone, with all of its answer."""
        batch = services.batches.read(viewer.tenant.id, batch_id)
        parts = services.results.job(viewer.tenant.id, batch_id, job_id)
        (card,) = cards(parts, services.thumbnails.linker(viewer.tenant.id, LARGE), most_question=MOST_ALONE)
        return desk.page(request, viewer, "results/job.html", batch=batch, card=card)

    return router
