"""The page of keys: listed, made, rotated, closed, and what was done by them last."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from app.audit import entry_name
from app.config import DAY_S
from app.console.keys import EXPIRIES, key_page, key_views, offered_scopes
from app.console.sessions import Viewer
from app.errors import Forbidden
from app.routes.console.desk import Desk, Form, bad_field, page_router, see
from app.schemas.tenants import KeyCreate
from app.services import Services
from app.store.keys import KeyRow

ENTRIES = 25
MOST_DIGITS = 9


@dataclass(frozen=True)
class Made:
    """A key to be shown this once."""

    row: KeyRow
    secret: str


def key_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/keys")
    reader, admin = Depends(desk.doors.admin_read), Depends(desk.doors.admin)

    @router.get("")
    def keys(
        request: Request,
        viewer: Annotated[Viewer, reader],
        after: str | None = None,
        audit_after: str | None = None,
    ) -> HTMLResponse:
        return shown(request, viewer, after=after, audit_after=audit_after)

    @router.post("")
    def create(request: Request, viewer: Annotated[Viewer, admin], form: Form) -> HTMLResponse:
        """Make a key and show it, this once."""
        days = str(form.get("expires_days") or "").strip()
        try:
            wish = KeyCreate.model_validate(
                {
                    "name": str(form.get("name") or "").strip(),
                    "scopes": [str(one) for one in form.getlist("scopes")],
                    "expires_days": _whole(days),
                }
            )
            row, secret = services.keys.create_for(
                viewer.tenant, name=wish.name, expires_days=wish.expires_days, scopes=wish.scopes
            )
        except ValidationError as error:
            return shown(request, viewer, problem=bad_field(error))
        except Forbidden:
            return shown(request, viewer, problem="too_much")
        return shown(request, viewer, made=Made(row, secret))

    @router.post("/{key_id}/rotate")
    def rotate(request: Request, viewer: Annotated[Viewer, admin], key_id: str, form: Form) -> HTMLResponse:
        """Another key like this one, which is closed at once or after a day."""
        keep_s = DAY_S if form.get("keep") == "day" else 0
        try:
            row, secret = services.keys.rotate_of(viewer.tenant, key_id, keep_s=keep_s)
        except Forbidden:
            return shown(request, viewer, problem="too_much")
        return shown(request, viewer, made=Made(row, secret))

    @router.post("/{key_id}/revoke")
    def revoke(viewer: Annotated[Viewer, admin], key_id: str) -> RedirectResponse:
        services.keys.revoke_of(viewer.tenant.id, key_id)
        return see("/keys")

    def shown(
        request: Request,
        viewer: Viewer,
        *,
        made: Made | None = None,
        problem: str | None = None,
        after: str | None = None,
        audit_after: str | None = None,
    ) -> HTMLResponse:
        own = viewer.tenant
        rows = services.keys.list_of(own.id)
        views = key_views(rows, own_id=own.key_id, own_scopes=own.scopes, now=datetime.now(UTC))
        page, older_keys = key_page(views, after)
        log = services.audit.read(own.id, limit=ENTRIES, after=audit_after)
        return desk.page(
            request,
            viewer,
            "keys/keys.html",
            status=400 if problem else 200,
            keys=page,
            after=after,
            older_keys=older_keys,
            names={row.id: row.name for row in rows},
            scopes=offered_scopes(own.scopes),
            expiries=EXPIRIES,
            made=made,
            problem=problem,
            entries=log.rows,
            older=entry_name(log.rows[-1].id) if log.has_more else None,
            audit_after=audit_after,
        )

    return router


def _whole(text: str) -> int | str | None:
    """A number as it was typed; what is none, or far too long, stays a text that no check lets through."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else text or None
