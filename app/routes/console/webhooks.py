"""Pages of webhooks: endpoints, made, changed, tested and deleted, and the log of what was sent to each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, get_args

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from app.console.sessions import Viewer
from app.errors import RequestError
from app.posting import Posted
from app.routes.console.desk import Desk, Form, bad_field, page_router, see
from app.routes.webhooks import Trials
from app.schemas.webhooks import EndpointCreate, EndpointTest, EventType
from app.services import Services
from app.signing import hint
from app.store.webhooks import EndpointRow

ENDPOINTS, DELIVERIES = 100, 25
EVENT_TYPES: tuple[str, ...] = get_args(EventType)
# Of the ends of batches: what most want to be told of.
USUAL = EVENT_TYPES[:4]


@dataclass(frozen=True)
class EndpointForm:
    """What a form says of an endpoint, right or not."""

    name: str
    url: str
    event_types: Sequence[str]


def webhook_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/webhooks")
    reader, admin = Depends(desk.doors.admin_read), Depends(desk.doors.admin)
    webhooks, trials = services.webhooks, Trials(services.webhooks)

    @router.get("")
    def endpoints(request: Request, viewer: Annotated[Viewer, reader]) -> HTMLResponse:
        return listed(request, viewer)

    @router.post("")
    def create(request: Request, viewer: Annotated[Viewer, admin], form: Form) -> HTMLResponse:
        """Make an endpoint and show its secret, this once."""
        try:
            wish = _endpoint(form)
            made = webhooks.create(
                viewer.tenant.id, name=wish.name, url=wish.url, event_types=wish.event_types
            )
        except (ValidationError, RequestError) as error:
            return listed(request, viewer, problem=_problem(error), given=_given(form))
        return one(request, viewer, made, secret=made.secret)

    @router.get("/{endpoint_id}")
    def endpoint(
        request: Request, viewer: Annotated[Viewer, reader], endpoint_id: str, after: str | None = None
    ) -> HTMLResponse:
        return one(request, viewer, webhooks.read(viewer.tenant.id, endpoint_id), after=after)

    @router.post("/{endpoint_id}", response_model=None)
    def change(
        request: Request, viewer: Annotated[Viewer, admin], endpoint_id: str, form: Form
    ) -> HTMLResponse | RedirectResponse:
        """Change it; one that rested is tried again."""
        try:
            wish = _endpoint(form)
            webhooks.update(
                viewer.tenant.id, endpoint_id, name=wish.name, url=wish.url, event_types=wish.event_types
            )
        except (ValidationError, RequestError) as error:
            known = webhooks.read(viewer.tenant.id, endpoint_id)
            return one(request, viewer, known, problem=_problem(error), given=_given(form))
        return see(f"/webhooks/{endpoint_id}")

    @router.post("/{endpoint_id}/rotate")
    def rotate(
        request: Request, viewer: Annotated[Viewer, admin], endpoint_id: str, form: Form
    ) -> HTMLResponse:
        """A new secret, shown this once."""
        keep = form.get("keep") == "day"
        changed = webhooks.rotate(viewer.tenant.id, endpoint_id, keep_old=keep)
        return one(request, viewer, changed, secret=changed.secret)

    @router.post("/{endpoint_id}/test")
    async def test(
        request: Request, viewer: Annotated[Viewer, admin], endpoint_id: str, form: Form
    ) -> HTMLResponse:
        """Send a sample event, and show how it was answered."""
        return await tested(request, viewer, endpoint_id, str(form.get("event_type") or ""))

    @router.post("/{endpoint_id}/delete")
    def delete(viewer: Annotated[Viewer, admin], endpoint_id: str) -> RedirectResponse:
        webhooks.delete(viewer.tenant.id, endpoint_id)
        return see("/webhooks")

    @router.post("/{endpoint_id}/deliveries/{delivery_id}/redeliver")
    def redeliver(viewer: Annotated[Viewer, admin], endpoint_id: str, delivery_id: str) -> RedirectResponse:
        webhooks.redeliver(viewer.tenant.id, endpoint_id, delivery_id)
        return see(f"/webhooks/{endpoint_id}#log")

    def listed(
        request: Request,
        viewer: Viewer,
        *,
        problem: RequestError | str | None = None,
        given: EndpointForm | None = None,
    ) -> HTMLResponse:
        page = webhooks.list(viewer.tenant.id, limit=ENDPOINTS, after=None)
        return desk.page(
            request,
            viewer,
            "webhooks/list.html",
            status=400 if problem else 200,
            endpoints=page.rows,
            event_types=EVENT_TYPES,
            problem=problem,
            given=given or EndpointForm("", "", USUAL),
        )

    def one(
        request: Request,
        viewer: Viewer,
        found: EndpointRow,
        *,
        secret: str | None = None,
        posted: Posted | None = None,
        tested_with: str = "",
        problem: RequestError | str | None = None,
        given: EndpointForm | None = None,
        after: str | None = None,
    ) -> HTMLResponse:
        log = webhooks.deliveries(viewer.tenant.id, found.id, limit=DELIVERIES, after=after)
        return desk.page(
            request,
            viewer,
            "webhooks/endpoint.html",
            status=400 if problem else 200,
            endpoint=found,
            hint=hint(found.secret),
            secret=secret,
            posted=posted,
            tested_with=tested_with,
            problem=problem,
            given=given or EndpointForm(found.name, found.url, found.event_types),
            is_changing=given is not None,
            event_types=EVENT_TYPES,
            log=log.rows,
            has_more=log.has_more,
            after=after,
        )

    async def tested(request: Request, viewer: Viewer, endpoint_id: str, event_type: str) -> HTMLResponse:
        problem: RequestError | str | None = None
        posted = None
        try:
            wish = EndpointTest.model_validate({"event_type": event_type})
            posted = await trials.send(viewer.tenant.id, endpoint_id, wish.event_type)
        except (ValidationError, RequestError) as error:
            problem = _problem(error)
        found = await run_in_threadpool(webhooks.read, viewer.tenant.id, endpoint_id)
        return await run_in_threadpool(
            one, request, viewer, found, posted=posted, tested_with=event_type, problem=problem
        )

    return router


def _given(form: FormData) -> EndpointForm:
    return EndpointForm(
        str(form.get("name") or "").strip(),
        str(form.get("url") or "").strip(),
        [str(one) for one in form.getlist("event_types")],
    )


def _endpoint(form: FormData) -> EndpointCreate:
    """ValidationError for what is none."""
    given = _given(form)
    return EndpointCreate.model_validate(
        {"name": given.name, "url": given.url, "event_types": list(given.event_types)}
    )


def _problem(error: ValidationError | RequestError) -> RequestError | str:
    """What to tell: a word of the page, or the service's own. What is not the form's fault goes on."""
    if isinstance(error, ValidationError):
        return bad_field(error)
    if error.status not in (400, 429):
        raise error
    return error
