"""What every page goes through: who looks, whether a form is ours, and how a page leaves."""

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.datastructures import FormData
from starlette.types import Message
from starlette.types import Scope as AsgiScope

from app.actor import actor
from app.auth import Scope
from app.console.rendering import THEMES, Reader, Renderer
from app.console.sessions import ConsoleSessions, Viewer
from app.console.words import Words, choose_language
from app.errors import Forbidden, RequestError
from app.routes.bodies import whole_body
from app.routes.caller import count_request
from app.throttle import Throttle

# The tag of the console's routes: their errors are pages.
PAGES = "console"
SESSION_COOKIE, LANGUAGE_COOKIE, THEME_COOKIE = "vqueue_session", "vqueue_language", "vqueue_theme"
# Of a form, which strangers may send, too; files go to the API's own routes.
FORM_FIELDS = 200
FORM_BYTES = 2 * 1024 * 1024
SURROGATES = re.compile("[\ud800-\udfff]")
HEADERS = {
    # Nothing from elsewhere, and nothing written into a page runs, whatever a model may have answered.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Look = Callable[..., Viewer]


@dataclass(frozen=True)
class Doors:
    """A door for each scope; those with forms want the session's token in them, too.

    `upload` takes a form that is a stream: its route checks the token (`Desk.check_token`).
    """

    read: Look
    write: Look
    review: Look
    admin: Look
    admin_read: Look
    write_read: Look
    upload: Look


class Desk:
    """Collaborators of all pages."""

    def __init__(self, *, renderer: Renderer, sessions: ConsoleSessions, throttle: Throttle) -> None:
        self.renderer = renderer
        self._sessions = sessions
        self._throttle = throttle
        self.doors = Doors(
            read=self._door(Scope.READ, with_form=False),
            write=self._door(Scope.WRITE, with_form=True),
            review=self._door(Scope.REVIEW, with_form=True),
            admin=self._door(Scope.ADMIN, with_form=True),
            admin_read=self._door(Scope.ADMIN, with_form=False),
            write_read=self._door(Scope.WRITE, with_form=False),
            upload=self._door(Scope.WRITE, with_form=False, own_site=True),
        )

    def page(
        self, request: Request, viewer: Viewer | None, template: str, *, status: int = 200, **values: object
    ) -> HTMLResponse:
        reader = Reader(
            language=_language(request),
            theme=_theme(request),
            path=_path(request) if request.method == "GET" else "/",
            here=request.url.path,
            viewer=viewer,
        )
        return HTMLResponse(
            self.renderer.render(template, reader, values), status_code=status, headers=HEADERS
        )

    def words(self, request: Request) -> Words:
        """Those of the viewer's language, for texts that are put together before the page."""
        return Words(_language(request))

    def error_page(self, request: Request, error: RequestError) -> Response | None:
        """What went wrong, as a page; strangers are sent to sign in, and come back. None for API clients."""
        if not is_page(request.scope):
            return None
        if error.status == 401:
            back = _path(request) if request.method == "GET" else "/"
            return RedirectResponse(f"/sign-in?next={quote(back)}", status_code=303)
        return self.page(request, self._known(request), "error.html", status=error.status, error=error)

    def _known(self, request: Request) -> Viewer | None:
        """Who looks, as far as that has been found out before the error."""
        return getattr(request.state, "viewer", None)

    def check_token(self, viewer: Viewer, given: str) -> None:
        """`Forbidden` for a form that is not of this session."""
        if not hmac.compare_digest(given.encode(), viewer.csrf.encode()):
            raise Forbidden(
                "This form is not of your session. Load the page again.", code="invalid_csrf_token"
            )

    def _door(self, scope: Scope, *, with_form: bool, own_site: bool = False) -> Look:
        def look(request: Request) -> Viewer:
            if own_site:
                check_origin(request)
            viewer = self._sessions.recognise(request.cookies.get(SESSION_COOKIE))
            request.state.viewer, request.state.tenant = viewer, viewer.tenant.id
            acting = actor()
            acting.tenant_id, acting.key_id = viewer.tenant.id, viewer.tenant.key_id
            if not viewer.may(scope):
                raise Forbidden(f"Your key has no scope '{scope}'.", code="insufficient_scope")
            count_request(request, self._throttle, viewer.tenant)
            return viewer

        def look_with_form(
            request: Request,
            viewer: Annotated[Viewer, Depends(look)],
            form: Annotated[FormData, Depends(read_form)],
        ) -> Viewer:
            self.check_token(viewer, str(form.get("csrf") or request.headers.get("x-csrf-token", "")))
            return viewer

        return look_with_form if with_form else look


def page_router(prefix: str = "") -> APIRouter:
    """A router of pages: not in the OpenAPI document, and with errors that are pages."""
    return APIRouter(prefix=prefix, include_in_schema=False, tags=[PAGES])


async def read_form(request: Request) -> FormData:
    """The fields of a form. Only from our own pages: browsers tell where a form was sent from.

    `RequestError` for one that is too large, or says what no database keeps as text.
    """
    check_origin(request)
    body = await whole_body(request, max_bytes=FORM_BYTES)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    form = await Request(request.scope, receive).form(max_fields=FORM_FIELDS, max_files=0)
    if not all(is_text(part) for item in form.multi_items() for part in item):
        raise RequestError("A form must not contain NUL characters or halves of pairs.", code="invalid_value")
    return form


def is_text(part: object) -> bool:
    """Whether it can be kept: no NUL, and no half of a surrogate pair, which some charsets smuggle in."""
    return isinstance(part, str) and "\0" not in part and not SURROGATES.search(part)


Form = Annotated[FormData, Depends(read_form)]


def check_origin(request: Request) -> None:
    """`Forbidden` for what another site's page has sent."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        ours = site in ("same-origin", "none")
    else:
        ours = origin is None or _host(origin) == request.headers.get("host")
    if not ours:
        raise Forbidden("This form comes from another site.", code="invalid_csrf_token")


def _host(origin: str) -> str | None:
    """None for what no browser sends, such as half an IPv6 address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def is_page(scope: AsgiScope) -> bool:
    """Whether errors of this request are for eyes: of a page, or of no route at all for a browser."""
    route = scope.get("route")
    if route is not None:
        return PAGES in getattr(route, "tags", ())
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return b"text/html" in accepted and not scope["path"].startswith("/v1/")


def back_to(path: str | None, fallback: str = "/batches") -> str:
    """Where to go on: a path of ours, never another site."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or "\n" in path or "\r" in path:
        return fallback
    return path


def bad_field(error: ValidationError) -> str:
    """The page's word for the first field that is wrong."""
    return f"bad_{error.errors()[0]['loc'][0]}"


def see(path: str) -> RedirectResponse:
    """Go on with this page, after a form."""
    return RedirectResponse(path, status_code=303)


def _language(request: Request) -> str:
    return choose_language(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language"))


def _theme(request: Request) -> str:
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in THEMES else "auto"


def _path(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path
