"""The page of an image: large, with all that was asked about it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from app.console.pictures import questions, way_back
from app.console.sessions import Viewer
from app.console.thumbnails import LARGE, SMALL
from app.routes.console.desk import Desk, page_router
from app.services import Services


def image_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/images")

    @router.get("/{content_hash}")
    def image(
        request: Request,
        viewer: Annotated[Viewer, Depends(desk.doors.read)],
        content_hash: str,
        job: str = "",
        before: str = "",
    ) -> HTMLResponse:
        """`job` is the one that the viewer comes from."""
        parts = services.results.image(viewer.tenant.id, content_hash, before=before or None)
        asked = questions(parts.asked, parts.labels)
        small = services.thumbnails.linker(viewer.tenant.id, SMALL)
        return desk.page(
            request,
            viewer,
            "images/image.html",
            content_hash=content_hash,
            link=services.thumbnails.linker(viewer.tenant.id, LARGE)(content_hash),
            facts=parts.facts,
            questions=asked,
            back=way_back(asked, job),
            near=[(one.content_hash, small(one.content_hash), one.ref) for one in parts.near],
            came_from=job,
            last=parts.asked[-1].id if parts.has_more else None,
            is_first=not before,
        )

    return router
