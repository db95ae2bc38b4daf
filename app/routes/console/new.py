"""Pages that make a batch of a file: drop it, say what to ask, try five rows, run all."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError

from app.batches import Wish, hash_wish
from app.console.asking import (
    AskForm,
    asked_as_text,
    batch_of,
    change_questions,
    first_form,
    local_cells,
    opens_more,
    problem_of,
    read_asked,
    read_form,
)
from app.console.input_view import OPTIONS, InputView, lines_view, preview_view, table_view
from app.console.sessions import Viewer
from app.console.thumbnails import SMALL
from app.errors import RequestError
from app.lines import BadLine
from app.multipart import Part
from app.previews import Asked, Layout
from app.routes.batches import wish_of
from app.routes.console.desk import Desk, Form, page_router, see
from app.routes.errors import explain_body
from app.routes.uploads import Uploads
from app.schemas import BatchCreate
from app.services import Services
from app.states import Endpoint
from app.store.files import FileRow
from app.tables.base import InputError
from app.tables.formats import FORMATS, LINES, format_of

# Of an idempotency key, which has 255 characters and holds a hash as well.
ONCE_CHARS = 64


def new_pages(services: Services, desk: Desk, uploads: Uploads) -> APIRouter:
    router = page_router("/new")
    sheet = Sheet(services, desk)
    writer = Depends(desk.doors.write)

    @router.get("")
    def start(request: Request, viewer: Annotated[Viewer, Depends(desk.doors.write_read)]) -> HTMLResponse:
        return sheet.start(request, viewer)

    @router.post("")
    async def upload(request: Request, viewer: Annotated[Viewer, Depends(desk.doors.upload)]) -> Response:
        """Keep a file; its form is a stream, with the session's token in a header or as the first field."""
        try:
            checked = partial(_with_token, desk, viewer, request.headers.get("x-csrf-token"))
            file = await uploads.keep(request, viewer.tenant.id, checked=checked)
        except RequestError as error:
            return sheet.start(request, viewer, error)
        return see(f"/new/{file.id}")

    @router.get("/{file_id}")
    def form_page(
        request: Request, viewer: Annotated[Viewer, Depends(desk.doors.write_read)], file_id: str
    ) -> HTMLResponse:
        return sheet.page(request, viewer, services.files.read(viewer.tenant.id, file_id))

    @router.post("/{file_id}")
    def act(request: Request, viewer: Annotated[Viewer, writer], form: Form, file_id: str) -> Response:
        """Whatever the form's buttons ask for; only `run` and `preview` change anything."""
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        file = services.files.read(viewer.tenant.id, file_id)
        filled, action = read_form(fields), fields.get("do", "look")
        asked = read_asked(fields.get("preview", ""))
        try:
            match action:
                case "run":
                    return see(f"/batches/{sheet.run(viewer, file, filled)}")
                case "preview":
                    asked = sheet.ask(viewer, file, filled)
                case _:
                    filled = change_questions(filled, action)
        except InputError as error:
            return sheet.page(request, viewer, file, filled, asked, problem=_as_request_error(error))
        except RequestError as error:
            return sheet.page(request, viewer, file, filled, asked, problem=error)
        return sheet.page(request, viewer, file, filled, asked)

    return router


class Sheet:
    """The page of one file, and what its buttons do."""

    def __init__(self, services: Services, desk: Desk) -> None:
        self._services = services
        self._desk = desk

    def start(self, request: Request, viewer: Viewer, problem: RequestError | None = None) -> HTMLResponse:
        status = problem.status if problem else 200
        return self._desk.page(
            request, viewer, "new/start.html", status=status, problem=problem, formats=FORMATS
        )

    def page(
        self,
        request: Request,
        viewer: Viewer,
        file: FileRow,
        form: AskForm | None = None,
        asked: Sequence[Asked] = (),
        *,
        problem: RequestError | None = None,
    ) -> HTMLResponse:
        shown = self._shown(file, form)
        if form is None:
            settings = self._services.settings
            form = first_form(
                shown.head, filename=file.filename, model=settings.default_model, endpoint=shown.endpoint
            )
        problems = problem_of(problem, self._desk.words(request)) if problem else {}
        answered = self._services.previews.look(viewer.tenant.id, [one.job for one in asked if one.job])
        link = self._services.thumbnails.linker(viewer.tenant.id, SMALL)
        return self._desk.page(
            request,
            viewer,
            "new/file.html",
            status=problem.status if problem else 200,
            file=file,
            input=shown,
            form=form,
            preview=preview_view(asked, answered, link),
            preview_text=asked_as_text(asked),
            problem=problem,
            problems=problems,
            local=local_cells(shown.head, form),
            opens_more=opens_more(form, problems),
            models=self._services.models.names(),
            options=OPTIONS,
        )

    def ask(self, viewer: Viewer, file: FileRow, form: AskForm) -> Sequence[Asked]:
        wish = _wish(form, file)
        previews, tenant_id = self._services.previews, viewer.tenant.id
        if wish.table is None:
            return previews.ask_lines(tenant_id, file.id, wish.endpoint)
        return previews.ask_rows(tenant_id, file.id, wish.table)

    def run(self, viewer: Viewer, file: FileRow, form: AskForm) -> str:
        """The id of the batch. The same form sent again makes none."""
        wish = _wish(form, file)
        key = f"console-{form.once[:ONCE_CHARS]}-{hash_wish(wish)}"
        return self._services.batches.submit(viewer.tenant.id, wish, idempotency_key=key).id

    def _shown(self, file: FileRow, form: AskForm | None) -> InputView:
        """The input's first rows, or why there are none."""
        previews = self._services.previews
        try:
            if has_table(file):
                return table_view(previews.head(file, Layout(**form.layout) if form else Layout()))
            endpoints = [form.endpoint] if form else [one.value for one in Endpoint]
            heads = [(previews.lines(file, one), one) for one in endpoints]
            return lines_view(
                *min(heads, key=lambda head: sum(isinstance(one, BadLine) for one in head[0].lines))
            )
        except InputError as error:
            return InputView(problem=error.errors[0].message)


def has_table(file: FileRow) -> bool:
    return format_of(file.filename) != LINES


def _wish(form: AskForm, file: FileRow) -> Wish:
    """What the form asks for, checked as the API checks it."""
    said = json.dumps(batch_of(form, file.id, has_table=has_table(file)))
    try:
        return wish_of(BatchCreate.model_validate_json(said))
    except ValidationError as error:
        raise explain_body(error) from None


def _with_token(desk: Desk, viewer: Viewer, token: str | None, parts: Iterator[Part]) -> Iterator[Part]:
    """The parts of an upload, once the session's token has come."""
    if token is None:
        first = next(parts, None)
        token = first.text() if first is not None and first.name == "csrf" else ""
    desk.check_token(viewer, token)
    yield from parts


def _as_request_error(error: InputError) -> RequestError:
    first = error.errors[0]
    return RequestError(first.message, code=first.code, param=first.param)
