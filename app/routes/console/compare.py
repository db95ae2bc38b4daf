"""The page of two batches side by side."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from app.console.cards import Card, cards
from app.console.filters import Asked, field_options
from app.console.paging import pager
from app.console.pairs import FIRST, SHOWN, kinds_of, pair_views
from app.console.sessions import Viewer
from app.console.thumbnails import SMALL
from app.routes.console.desk import Desk, page_router
from app.services import Services
from app.store.console_compare import Pair, PairFilters

OFFERED = 50  # batches to choose from, the newest
MOST_LINE_DIGITS = 9


def compare_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/compare")

    @router.get("")
    def compare(
        request: Request,
        viewer: Annotated[Viewer, Depends(desk.doors.read)],
        a: str = "",
        b: str = "",
        show: str = FIRST,
        after: str = "",
        before: str = "",
    ) -> HTMLResponse:
        tenant = viewer.tenant.id
        chosen = {name: services.batches.read(tenant, name) for name in (a, b) if name}
        if not a or not b or a == b:
            offered = services.batches.list(tenant, limit=OFFERED).rows
            return desk.page(request, viewer, "compare/choose.html", offered=offered, a=a, b=b)
        asked, is_open = Asked.of(request.query_params), any(batch.is_open for batch in chosen.values())
        wanted = asked.filters()
        fit = PairFilters(kinds_of(show), wanted.text, wanted.label)
        at = _line(before) or _line(after)
        backwards = bool(_line(before))
        found = services.comparisons.find(a, b, fit, at=at, backwards=backwards)
        counts = services.results.counts(a, is_open=is_open)
        return desk.page(
            request,
            viewer,
            "compare/compare.html",
            a=chosen[a],
            b=chosen[b],
            asked=asked,
            show=show if show in SHOWN else FIRST,
            shown=list(SHOWN),
            found=found,
            pairs=pair_views(found.pairs, cards_of(tenant, found.pairs)),
            agreement=services.comparisons.agreement(a, b, is_open=is_open),
            fields=field_options(asked, counts),
            pager=pager(
                [pair.line for pair in found.pairs],
                at=at or None,
                backwards=backwards,
                resume=found.line,
                name=str,
            ),
        )

    def cards_of(tenant_id: str, pairs: Sequence[Pair]) -> list[Card]:
        ids = [job_id for pair in pairs for job_id in (pair.a, pair.b) if job_id is not None]
        parts = services.results.cards(tenant_id, ids)
        return cards(parts, services.thumbnails.linker(tenant_id, SMALL))

    return router


def _line(text: str) -> int:
    """A line to go on behind; 0 for what is none."""
    is_line = text.isascii() and text.isdigit() and len(text) <= MOST_LINE_DIGITS
    return int(text) if is_line else 0
