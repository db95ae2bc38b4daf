"""Exports over HTTP (ours): a batch's answers as a file that is made while it is sent."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from app.auth import Tenant
from app.exports.opening import CONTENT_TYPES, Columns, Export, Exports, ExportWish, Format, Rows
from app.routes.caller import Caller
from app.routes.streaming import Streamed
from app.routes.strict import STRICT

BINARY = {"schema": {"type": "string", "format": "binary"}}
DOC: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind.partition(";")[0]: BINARY for kind in CONTENT_TYPES.values()}}
}


def export_routes(*, exports: Exports, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/batches/{batch_id}", tags=["batches"], dependencies=STRICT)

    @router.get("/export", response_class=StreamingResponse, responses=DOC)
    def export(
        tenant: Annotated[Tenant, Depends(caller.read)],
        batch_id: str,
        format: Format = Format.CSV,
        rows: Rows = Rows.ALL,
        columns: Columns = Columns.ALL,
        retries: bool = False,
    ) -> StreamingResponse:
        """The batch's answers so far, in the order of the input: a row per line, or the table's own rows.

        `columns=answers` leaves a table's own columns out. `retries` takes the newest answer of each line
        among those of the batch and its retries.
        """
        return sent(exports.open(tenant.id, batch_id, ExportWish(format, rows, columns, retries)))

    return router


def sent(made: Export) -> Streamed:
    """An export on its way, as a file to be kept."""
    return Streamed(made.blocks, media_type=made.content_type, headers=_headers(made))


def _headers(made: Export) -> dict[str, str]:
    """Named, of this moment, and never shown by a browser as a page of ours."""
    return {
        "Content-Disposition": f'attachment; filename="{made.filename}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
