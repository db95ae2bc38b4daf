"""Batches over HTTP: create, look at, list, cancel, read results."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response

from app.auth import Tenant
from app.batches import Batches, Wish
from app.progress import Progress
from app.routes.bodies import documented, json_body
from app.routes.caller import Caller
from app.routes.render import batch_list, batch_object, result_list
from app.schemas import BatchCreate, BatchDeleted, BatchList, BatchObject, ResultList, window_seconds
from app.states import Priority

# A batch's body is a few ids and at most 16 metadata pairs.
BODY_BYTES = 256 * 1024
MOST_BATCHES = 100  # OpenAI's
MOST_RESULTS = 1_000
MOST_JOBS = 2**30  # more than a batch can have
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]
RetryCount = Annotated[str, Header(alias="x-stainless-retry-count", include_in_schema=False)]


def batch_routes(*, batches: Batches, progress: Progress, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/batches", tags=["batches"])
    read_body = json_body(BatchCreate, max_bytes=BODY_BYTES)

    @router.post("", openapi_extra=documented(BatchCreate))
    def create(
        tenant: Annotated[Tenant, Depends(caller)],
        body: Annotated[BatchCreate, Depends(read_body)],
        idempotency_key: IdempotencyKey = None,
        retry_count: RetryCount = "0",
    ) -> BatchObject:
        """Create a batch from an uploaded file. The same request sent again gives the same batch."""
        batch = batches.submit(
            tenant.id,
            _wish(body),
            idempotency_key=idempotency_key,
            is_retry=retry_count.strip() not in ("", "0"),
        )
        return batch_object(batch)

    @router.get("")
    def list_batches(
        tenant: Annotated[Tenant, Depends(caller)],
        limit: Annotated[int, Query(ge=1, le=MOST_BATCHES)] = 20,
        after: str | None = None,
    ) -> BatchList:
        """The batches, newest first."""
        return batch_list(batches.list(tenant.id, limit=limit, after=after))

    @router.get("/{batch_id}")
    def read(tenant: Annotated[Tenant, Depends(caller)], batch_id: str) -> BatchObject:
        return batch_object(batches.read(tenant.id, batch_id))

    @router.post("/{batch_id}/cancel")
    def cancel(tenant: Annotated[Tenant, Depends(caller)], batch_id: str) -> BatchObject:
        """Stop a batch; what is answered by then stays available."""
        return batch_object(batches.cancel(tenant.id, batch_id))

    @router.get("/{batch_id}/results", response_model=ResultList)
    def read_results(
        tenant: Annotated[Tenant, Depends(caller)],
        batch_id: str,
        after: Annotated[int, Query(ge=0, le=MOST_JOBS)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_RESULTS)] = 100,
        status: Literal["completed", "failed"] | None = None,
    ) -> Response:
        """The results so far, in the order in which they ended, behind number `after` (ours).

        With `status`, a page covers `limit` results and shows those that are so: go on from `last_seq`.
        """
        answered = None if status is None else status == "completed"
        page = progress.results(tenant.id, batch_id, after=after, limit=limit, answered=answered)
        return Response(result_list(page), media_type="application/json")

    @router.delete("/{batch_id}")
    def delete(tenant: Annotated[Tenant, Depends(caller)], batch_id: str) -> BatchDeleted:
        """Delete a batch that has ended, with its answers, output file and error file."""
        batches.delete(tenant.id, batch_id)
        return BatchDeleted(id=batch_id)

    return router


def _wish(body: BatchCreate) -> Wish:
    expiry = body.output_expires_after
    return Wish(
        input_file_id=body.input_file_id,
        endpoint=body.endpoint,
        completion_window=body.completion_window,
        window_s=window_seconds(body.completion_window),
        metadata=body.metadata,
        output_expires_after_s=expiry.seconds if expiry else None,
        priority=Priority(body.priority),
    )
