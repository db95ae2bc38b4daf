"""Files over HTTP: upload, list, look at, read, delete."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

import anyio
from anyio.from_thread import run
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from app.auth import Tenant
from app.files import Files
from app.multipart import Form
from app.routes.bodies import IdempotencyKey, blocks
from app.routes.caller import Caller
from app.routes.render import file_list, file_object
from app.routes.waiting import place_in_time
from app.schemas import FileDeleted, FileList, FileObject
from app.shares import Places
from app.store.files import FileRow

# An upload holds a thread for as long as its client sends, and about three parts of 8 MiB: more of them wait
# for each other, and not for the threads of other requests.
UPLOADS = 16
WAIT_S, RETRY_AFTER_S = 20.0, 5  # for a place among them
MOST_FILES = 10_000  # OpenAI's
FORM = {
    "type": "object",
    "required": ["purpose", "file"],
    "properties": {
        "purpose": {"type": "string"},
        "expires_after[anchor]": {"type": "string"},
        "expires_after[seconds]": {"type": "integer"},
        "file": {"type": "string", "format": "binary"},
    },
}
UPLOAD_DOC = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}}
# Of whatever type the file is.
BYTES_DOC: dict[int | str, dict[str, Any]] = {
    200: {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
}


def file_routes(*, files: Files, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/files", tags=["files"])
    uploads, places = anyio.CapacityLimiter(UPLOADS), Places(UPLOADS)

    @router.post("", openapi_extra=UPLOAD_DOC)
    async def upload(
        request: Request,
        tenant: Annotated[Tenant, Depends(caller.write)],
        idempotency_key: IdempotencyKey = None,
    ) -> FileObject:
        """Upload a file: the input of a batch, or an image that jobs name by its id."""
        form = Form(request.headers.get("content-type"), _pulled(request))
        keep = partial(files.upload, tenant.id, form.parts(), idempotency_key=idempotency_key)
        async with place_in_time(
            places,
            tenant.id,
            wait_s=WAIT_S,
            what=f"the {UPLOADS} uploads at once",
            code="too_many_uploads",
            retry_after_s=RETRY_AFTER_S,
        ):
            return file_object(await run_sync(keep, limiter=uploads))

    @router.get("")
    def list_files(
        tenant: Annotated[Tenant, Depends(caller.read)],
        limit: Annotated[int, Query(ge=1, le=MOST_FILES)] = MOST_FILES,
        after: str | None = None,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> FileList:
        """The files, newest first unless asked otherwise."""
        page = files.list(tenant.id, limit=limit, newest_first=order == "desc", after=after, purpose=purpose)
        return file_list(page)

    @router.get("/{file_id}")
    def read(tenant: Annotated[Tenant, Depends(caller.read)], file_id: str) -> FileObject:
        """What is known of a file."""
        return file_object(files.read(tenant.id, file_id))

    @router.get("/{file_id}/content", response_class=StreamingResponse, responses=BYTES_DOC)
    def content(tenant: Annotated[Tenant, Depends(caller.read)], file_id: str) -> StreamingResponse:
        """The file's bytes."""
        file = files.read(tenant.id, file_id)
        return StreamingResponse(
            files.content(file), media_type=file.content_type, headers=_download_headers(file)
        )

    @router.delete("/{file_id}")
    def delete(tenant: Annotated[Tenant, Depends(caller.write)], file_id: str) -> FileDeleted:
        """Delete a file, whoever still needs it."""
        files.delete(tenant.id, file_id)
        return FileDeleted(id=file_id)

    return router


def _pulled(request: Request) -> Iterator[bytes]:
    """The body for a thread, which takes each block from the event loop when it is ready for it."""
    stream = blocks(request)

    async def pull() -> bytes | None:
        return await anext(stream, None)

    while (block := run(pull)) is not None:
        yield block


def _download_headers(file: FileRow) -> dict[str, str]:
    """Named, sized, and never shown by a browser as a page of ours."""
    return {
        "Content-Length": str(file.bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
