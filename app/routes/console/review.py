"""Pages of the review queue: which answers, one after the other, and how far people agree on them."""

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.datastructures import FormData

from app.answers import CONFIRM, OVERTURN, ReviewWish
from app.console.review import (
    SHARES,
    answer_path,
    mark,
    query_of,
    read_mark,
    read_wish,
    review_view,
    start_path,
)
from app.console.sessions import Viewer
from app.console.thumbnails import LARGE
from app.errors import RequestError
from app.ids import job_name
from app.reviewing import Opened, QueueWish
from app.routes.answers import sent_corrections
from app.routes.console.desk import Desk, Form, page_router, see
from app.services import Services
from app.store.review_queue import Searcher

MOST_BATCHES = 50
MOST_NOTE = 2000


def review_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/review")
    reader, reviewer = Depends(desk.doors.read), Depends(desk.doors.review)
    pages = _Pages(services, desk)

    @router.get("")
    def start(request: Request, viewer: Annotated[Viewer, reader]) -> HTMLResponse:
        return pages.start(request, viewer)

    @router.post("/next")
    def begin(viewer: Annotated[Viewer, reviewer], form: Form) -> RedirectResponse:
        """Take the first answer of the queue."""
        return pages.next(viewer, read_wish(form), after=None, last="")

    @router.get("/agreement")
    def agreement(request: Request, viewer: Annotated[Viewer, reader]) -> HTMLResponse:
        return pages.agreement(request, viewer)

    @router.get("/corrections")
    def corrections(request: Request, viewer: Annotated[Viewer, reader]) -> StreamingResponse:
        filters = read_wish(request.query_params).filters
        return sent_corrections(services.answers.corrections(viewer.tenant.id, filters))

    @router.get("/{job_id}")
    def answer(
        request: Request,
        viewer: Annotated[Viewer, reader],
        job_id: str,
        field: str | None = None,
        last: str = "",
    ) -> HTMLResponse:
        opened = services.review_queue.open(_searcher(viewer), job_id, field)
        return pages.answer(request, viewer, opened, read_wish(request.query_params), last=last)

    @router.post("/{job_id}")
    def say(request: Request, viewer: Annotated[Viewer, reviewer], job_id: str, form: Form) -> Response:
        """Confirm or overturn, and go on to the next."""
        wish, field = read_wish(form), str(form.get("field") or "")
        try:
            services.answers.review(viewer.tenant.id, job_id, _wish(form, field))
        except RequestError as error:
            if error.status != 400:
                raise
            opened = services.review_queue.open(_searcher(viewer), job_id, field)
            return pages.answer(
                request, viewer, opened, wish, problem=error, note=str(form.get("note") or "")
            )
        services.review_queue.release(_searcher(viewer), job_id, field)
        return pages.next(viewer, wish, after=(job_id, field), last=mark(job_id, field))

    @router.post("/{job_id}/skip")
    def skip(viewer: Annotated[Viewer, reviewer], job_id: str, form: Form) -> RedirectResponse:
        """Leave it to others, or to the next time."""
        field = str(form.get("field") or "")
        services.review_queue.release(_searcher(viewer), job_id, field)
        last = str(form.get("last") or "")
        return pages.next(viewer, read_wish(form), after=(job_id, field), last=last)

    @router.post("/{job_id}/undo")
    def undo(viewer: Annotated[Viewer, reviewer], job_id: str, form: Form) -> RedirectResponse:
        """Take back what one has said, and look at it again."""
        field = str(form.get("field") or "")
        services.answers.take_back(viewer.tenant.id, job_id, field)
        services.review_queue.hold(_searcher(viewer), job_id, field)
        return see(answer_path(job_id, field, read_wish(form)))

    @router.post("/{job_id}/hold", status_code=204)
    def hold(viewer: Annotated[Viewer, reviewer], job_id: str, form: Form) -> Response:
        """Still being looked at; 409 where it is somebody else's by now."""
        held = services.review_queue.hold(_searcher(viewer), job_id, str(form.get("field") or ""))
        return Response(status_code=204 if held else 409)

    return router


class _Pages:
    def __init__(self, services: Services, desk: Desk) -> None:
        self._services = services
        self._desk = desk

    def start(self, request: Request, viewer: Viewer) -> HTMLResponse:
        services, tenant_id = self._services, viewer.tenant.id
        wish = read_wish(request.query_params)
        last = request.query_params.get("last", "")
        return self._desk.page(
            request,
            viewer,
            "review/start.html",
            wish=wish,
            query=query_of(wish),
            waiting=services.review_queue.waiting(_searcher(viewer), wish),
            names=services.review_queue.names(tenant_id, wish.filters.question),
            batches=services.batches.list(tenant_id, limit=MOST_BATCHES, after=None).rows,
            sweeps=services.sweeps.list(tenant_id, limit=MOST_BATCHES, after=None).rows,
            shares=SHARES,
            is_over="over" in request.query_params,
            last=last,
            last_answer=read_mark(last),
        )

    def answer(
        self,
        request: Request,
        viewer: Viewer,
        opened: Opened,
        wish: QueueWish,
        *,
        last: str = "",
        problem: RequestError | None = None,
        note: str | None = None,
    ) -> HTMLResponse:
        view, tenant_id = review_view(opened), viewer.tenant.id
        link = self._services.thumbnails.linker(tenant_id, LARGE)
        links = [link(one.content_hash) if one and one.content_hash else None for one in opened.pictures]
        known = opened.own if wish.mode == "second" else opened.review
        return self._desk.page(
            request,
            viewer,
            "review/answer.html",
            status=400 if problem else 200,
            view=view,
            pictures=links,
            wish=wish,
            query=query_of(wish),
            waiting=self._services.review_queue.waiting(_searcher(viewer), wish),
            known=known,
            by=_names_of(self._services, tenant_id) if known else {},
            note=note if note is not None else (opened.own.note or "" if opened.own else ""),
            problem=problem,
            last=last,
            last_answer=read_mark(last),
        )

    def next(
        self, viewer: Viewer, wish: QueueWish, *, after: tuple[str, str] | None, last: str
    ) -> RedirectResponse:
        found = self._services.review_queue.next(_searcher(viewer), wish, after=after)
        if found is None:
            return see(start_path(wish, over="yes", last=last))
        return see(answer_path(job_name(found.job_id), found.field, wish, last=last))

    def agreement(self, request: Request, viewer: Viewer) -> HTMLResponse:
        tenant_id, wish = viewer.tenant.id, read_wish(request.query_params)
        queue = self._services.review_queue
        found = queue.agreement(tenant_id, wish.filters)
        return self._desk.page(
            request,
            viewer,
            "review/agreement.html",
            wish=wish,
            names=queue.names(tenant_id, None),
            batches=self._services.batches.list(tenant_id, limit=MOST_BATCHES, after=None).rows,
            pairs=found,
            answers=sum(one.answers for one in found),
            agreed=sum(one.agreed for one in found),
            differences=[(one, job_name(one.job_id)) for one in queue.differences(tenant_id, wish.filters)],
            by=_names_of(self._services, tenant_id),
        )


def _searcher(viewer: Viewer) -> Searcher:
    """A person by the key, who may sit at two screens: each is a holder of its own."""
    holder = hashlib.sha256(viewer.csrf.encode()).hexdigest()[:32]
    return Searcher(viewer.tenant.id, viewer.tenant.key_id, holder)


def _names_of(services: Services, tenant_id: str) -> dict[str, str]:
    return {key.id: key.name for key in services.keys.list_of(tenant_id)}


def _wish(form: FormData, field: str) -> ReviewWish:
    """What a form says: confirmed, one of the labels, several of them, or a text."""
    note = str(form.get("note") or "").strip()[:MOST_NOTE] or None
    if form.get("verdict") == CONFIRM:
        return ReviewWish(CONFIRM, field, note=note)
    if "choice" in form:
        return ReviewWish(OVERTURN, field, _json(str(form["choice"])), has_label=True, note=note)
    if "several" in form:
        several = [_json(str(one)) for one in form.getlist("one")]
        return ReviewWish(OVERTURN, field, several, has_label=True, note=note)
    written = str(form.get("text") or "").strip()
    return ReviewWish(OVERTURN, field, written, has_label=bool(written), note=note)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
