"""The Responses API over HTTP: one question, answered whole while the line is held."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from app.auth import Tenant
from app.chats import Chats
from app.lines import MAX_LINE_BYTES
from app.results import response
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.edge import CLIENT_GONE
from app.routes.held import HungUp, whole
from app.schemas import ResponseCreate
from app.states import Endpoint


def response_routes(*, chats: Chats, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/responses", tags=["responses"])
    read_body = json_body(ResponseCreate, max_bytes=MAX_LINE_BYTES)

    @router.post("", openapi_extra=documented(ResponseCreate))
    async def respond(
        request: Request,
        tenant: Annotated[Tenant, Depends(caller.chat)],
        body: Annotated[ResponseCreate, Depends(read_body)],
    ) -> Response:
        """Ask, and hold the line until the answer is there. Nothing is kept: send whole conversations."""
        given = body.model_dump(exclude_unset=True)
        chat = await chats.ask(tenant.id, given, Endpoint.RESPONSES)
        try:
            return JSONResponse(response(await whole(request, chats, chat)))
        except HungUp:
            return Response(status_code=CLIENT_GONE)

    return router
