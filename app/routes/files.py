"""Files over HTTP: upload, list, look at, read, delete."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from app.auth import Tenant
from app.files import Files
from app.routes.bodies import IdempotencyKey
from app.routes.caller import Caller
from app.routes.render import file_list, file_object
from app.routes.uploads import Uploads
from app.schemas import FileDeleted, FileList, FileObject
from app.store.files import FileRow

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


def file_routes(*, files: Files, uploads: Uploads, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/files", tags=["files"])

    @router.post("", openapi_extra=UPLOAD_DOC)
    async def upload(
        request: Request,
        tenant: Annotated[Tenant, Depends(caller.write)],
        idempotency_key: IdempotencyKey = None,
    ) -> FileObject:
        """Upload a file: the input of a batch, or an image that jobs name by its id."""
        return file_object(await uploads.keep(request, tenant.id, idempotency_key=idempotency_key))

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


def _download_headers(file: FileRow) -> dict[str, str]:
    """Named, sized, and never shown by a browser as a page of ours."""
    return {
        "Content-Length": str(file.bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
