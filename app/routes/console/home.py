"""Signing in and out, how pages look, and the files and pictures in them."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.console.rendering import THEMES
from app.console.sessions import ConsoleSessions
from app.console.thumbnails import SAME_S, Thumbnail, Thumbnails
from app.console.words import LANGUAGES
from app.errors import Forbidden, NotFound, Unauthorized
from app.routes.console.desk import (
    LANGUAGE_COOKIE,
    SESSION_COOKIE,
    THEME_COOKIE,
    Desk,
    Form,
    back_to,
    page_router,
    read_form,
    see,
)

YEAR_S = 365 * 86_400
FOR_GOOD = f"public, max-age={YEAR_S}, immutable"


def home_pages(sessions: ConsoleSessions, thumbnails: Thumbnails, desk: Desk) -> APIRouter:
    router = page_router()

    @router.get("/")
    def home() -> RedirectResponse:
        return see("/batches")

    @router.get("/sign-in")
    def sign_in_page(request: Request, next: str = "/batches") -> HTMLResponse:
        return desk.page(request, None, "sign_in.html", next=back_to(next), problem=None)

    @router.post("/sign-in")
    def sign_in(request: Request, form: Form) -> Response:
        """Exchange a key for a session's cookie."""
        next = back_to(str(form.get("next", "")))
        try:
            opened = sessions.open(str(form.get("key", "")))
        except (Unauthorized, Forbidden) as error:
            return desk.page(
                request, None, "sign_in.html", status=error.status, next=next, problem=error.code or "other"
            )
        # Its cookie is about to go: nobody could sign it out any more.
        sessions.close(request.cookies.get(SESSION_COOKIE))
        answer = see(next)
        _keep(answer, request, SESSION_COOKIE, opened.token, max_age=opened.lasts_s)
        return answer

    @router.post("/sign-out", dependencies=[Depends(read_form)])
    def sign_out(request: Request) -> Response:
        sessions.close(request.cookies.get(SESSION_COOKIE))
        answer = see("/sign-in")
        answer.delete_cookie(SESSION_COOKIE)
        return answer

    @router.post("/look")
    def look(request: Request, form: Form) -> Response:
        """Choose a language or a theme: a cookie each."""
        answer = see(back_to(str(form.get("next", ""))))
        if (language := str(form.get("language", ""))) in LANGUAGES:
            _keep(answer, request, LANGUAGE_COOKIE, language, max_age=YEAR_S)
        if (theme := str(form.get("theme", ""))) in THEMES:
            _keep(answer, request, THEME_COOKIE, theme, max_age=YEAR_S)
        return answer

    @router.get("/static/{digest}/{name}")
    def static(digest: str, name: str) -> Response:
        """A file of the pages; what its address names never changes."""
        asset = desk.renderer.assets.get(name)
        if asset is None:
            raise NotFound("There is no such file.", code="unknown_url")
        current = digest == desk.renderer.digest
        headers = {"Cache-Control": FOR_GOOD if current else "no-cache", "X-Content-Type-Options": "nosniff"}
        return Response(asset.body, media_type=asset.content_type, headers=headers)

    @router.get("/thumbnails/{tenant_id}/{content_hash}/{side}")
    def thumbnail(tenant_id: str, content_hash: str, side: int, until: int, mark: str) -> Response:
        """A small picture, for whoever holds a link of ours that is not over."""
        wanted = Thumbnail(tenant_id, content_hash, side, until)
        made = thumbnails.read(wanted, mark)
        headers = {
            "Cache-Control": f"private, max-age={SAME_S}, immutable",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'",
        }
        return Response(made, media_type="image/webp", headers=headers)

    return router


def _keep(answer: Response, request: Request, name: str, value: str, *, max_age: int) -> None:
    """A cookie that no script reads and no other site sends; only over TLS where the page came so."""
    answer.set_cookie(
        name, value, max_age=max_age, httponly=True, samesite="lax", secure=request.url.scheme == "https"
    )
