"""Request bodies: read in blocks under limits of size and silence, and parsed off the event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ValidationError

from app.errors import RequestError, TooLarge
from app.routes.errors import explain_body

# A client that sends nothing for this long is gone, and holds a thread or memory.
SILENCE_S = 60.0
# Who sends less for long uses up the patience that is left, so that nobody holds a place for good.
LEAST_BYTES_S = 1024

# As a header of its own, or none. Postgres has no NUL in text, and HTTP none in a header.
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]

Body = TypeVar("Body", bound=BaseModel)


class TooSlow(RequestError):
    status = 408


async def blocks(request: Request, *, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[bytes]:
    """The body as it comes; `TooSlow` when the client falls silent, or sends a byte now and then."""
    stream = request.stream()
    patience = SILENCE_S
    while True:
        asked = clock()
        try:
            async with asyncio.timeout(patience):
                block = await anext(stream, b"")
        except TimeoutError:
            raise _too_slow() from None
        patience = min(SILENCE_S, patience - (clock() - asked) + len(block) / LEAST_BYTES_S)
        if patience <= 0:
            raise _too_slow()
        if not block:
            return
        yield block


def _too_slow() -> TooSlow:
    return TooSlow(
        f"No data came for {SILENCE_S:.0f} seconds, or less than {LEAST_BYTES_S:,} bytes a second for long.",
        code="request_timeout",
    )


def json_body(
    model: type[Body], *, max_bytes: int, empty: bytes = b""
) -> Callable[[Request], Awaitable[Body]]:
    """A dependency that reads and checks a JSON body; `empty` is what a request without one means.

    Unlike a body parameter of FastAPI it comes after the caller is known, so that strangers cannot fill our
    memory, and parses on a thread, because megabytes of data URLs would stop the event loop.
    """

    async def read(request: Request) -> Body:
        data = await whole_body(request, max_bytes=max_bytes)
        return await run_in_threadpool(_parse, model, data or empty)

    return read


async def whole_body(request: Request, *, max_bytes: int) -> bytes:
    """The body in one piece; `TooLarge` as soon as it is over."""
    data = bytearray()
    async for block in blocks(request):
        data += block
        if len(data) > max_bytes:
            raise TooLarge(f"The request body is over {max_bytes:,} bytes.", code="body_too_large")
    return bytes(data)


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry of a body that FastAPI does not read itself, for `openapi_extra`."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inlined(schema, parts)}}
    return {"requestBody": {"required": True, "content": content}}


def _parse(model: type[Body], data: bytes) -> Body:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise explain_body(error) from None


def _inlined(value: Any, parts: dict[str, Any]) -> Any:
    """JSON schema with its references replaced by what they point to: OpenAPI has them in another place."""
    if isinstance(value, list):
        return [_inlined(item, parts) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(parts[value["$ref"].rsplit("/", 1)[-1]], parts)
    return {key: _inlined(item, parts) for key, item in value.items()}
