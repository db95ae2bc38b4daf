"""The page of operations: what waits, who works, what is down."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from app.console.sessions import Viewer
from app.routes.console.desk import Desk, page_router
from app.services import Services


def operations_pages(services: Services, desk: Desk) -> APIRouter:
    router = page_router("/operations")
    settings = services.settings

    @router.get("")
    def operations(request: Request, viewer: Annotated[Viewer, Depends(desk.doors.read)]) -> HTMLResponse:
        return desk.page(
            request,
            viewer,
            "operations/operations.html",
            view=services.operations.read(viewer.tenant.id),
            links={"Flower": settings.console_flower_url, "Grafana": settings.console_grafana_url},
        )

    return router
