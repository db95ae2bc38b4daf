"""Chat completions over HTTP, whole or as server-sent events, for whoever holds the line."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from app.auth import Tenant
from app.chat_stream import KEEP_ALIVE, Chunks, Streaming, error_event, read_streaming
from app.chats import Chat, Chats
from app.errors import RequestError
from app.lines import MAX_LINE_BYTES
from app.results import completion
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.edge import CLIENT_GONE
from app.routes.held import HungUp, while_there, whole
from app.routes.render import unix
from app.schemas import ChatCreate

# Nothing on the way may gather events before it passes them on.
UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
STREAMING = {"stream", "stream_options"}
STREAM_DOC: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


def chat_routes(*, chats: Chats, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/chat/completions", tags=["chat"])
    # What a line of a batch may be, a body posted straight may be too.
    read_body = json_body(ChatCreate, max_bytes=MAX_LINE_BYTES)

    @router.post("", openapi_extra=documented(ChatCreate), responses=STREAM_DOC)
    async def complete(
        request: Request,
        tenant: Annotated[Tenant, Depends(caller.chat)],
        body: Annotated[ChatCreate, Depends(read_body)],
    ) -> Response:
        """Ask, and hold the line until the answer is there, or while it comes."""
        given = body.model_dump(exclude_unset=True)
        streaming = read_streaming(given)
        chat = await chats.ask(
            tenant.id, {name: value for name, value in given.items() if name not in STREAMING}
        )
        try:
            if streaming.wanted:
                return await _streamed(request, _events(chats, chat, streaming))
            return JSONResponse(completion(await whole(request, chats, chat)))
        except HungUp:
            return Response(status_code=CLIENT_GONE)

    return router


async def _events(chats: Chats, chat: Chat, streaming: Streaming) -> AsyncIterator[bytes]:
    """Raises RequestError before the first event, and makes an event of it afterwards."""
    chunks = Chunks(chat.job.id, chat.job.model, unix(chat.job.created_at), streaming.include_usage)
    begun = False
    with chats.holding(chat):
        try:
            async for text in chat.texts():
                if not begun:
                    begun = True
                    yield chunks.role()
                yield chunks.text(text) if text else KEEP_ALIVE
            answer = chat.answer()
        except RequestError as error:
            if not begun:
                raise
            yield error_event(error)
            return
    if not begun:
        yield chunks.role()
    for event in chunks.end(answer):
        yield event


async def _streamed(request: Request, events: AsyncIterator[bytes]) -> Response:
    """Begun with the first event: what goes wrong before it is told by the status."""

    async def begin() -> bytes:
        return await anext(events)

    first = await while_there(request, begin())

    async def all_events() -> AsyncIterator[bytes]:
        yield first
        async for event in events:
            yield event

    return StreamingResponse(all_events(), media_type="text/event-stream", headers=UNBUFFERED)
