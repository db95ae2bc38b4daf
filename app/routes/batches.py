"""Batches over HTTP, as OpenAI has them: create, look at, list, cancel; and delete."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query

from app.answer_keys import CacheMode
from app.auth import Tenant
from app.batches import Batches, Brake, Wish
from app.routes.bodies import IdempotencyKey, documented, json_body
from app.routes.caller import Caller
from app.routes.render import batch_list, batch_object
from app.schemas import BatchCreate, BatchDeleted, BatchList, BatchObject, FailureBrake
from app.states import Priority
from app.windows import window_seconds

# A batch's body is a few ids and at most 16 metadata pairs.
BODY_BYTES = 256 * 1024
MOST_BATCHES = 100  # OpenAI's
RetryCount = Annotated[str, Header(alias="x-stainless-retry-count", include_in_schema=False)]


def batch_routes(*, batches: Batches, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/batches", tags=["batches"])
    read_body = json_body(BatchCreate, max_bytes=BODY_BYTES)

    @router.post("", openapi_extra=documented(BatchCreate))
    def create(
        tenant: Annotated[Tenant, Depends(caller.write)],
        body: Annotated[BatchCreate, Depends(read_body)],
        idempotency_key: IdempotencyKey = None,
        retry_count: RetryCount = "0",
    ) -> BatchObject:
        """Create a batch from an uploaded file. The same request sent again gives the same batch."""
        batch = batches.submit(
            tenant.id,
            wish_of(body),
            idempotency_key=idempotency_key,
            is_retry=is_retry(retry_count),
        )
        return batch_object(batch)

    @router.get("")
    def list_batches(
        tenant: Annotated[Tenant, Depends(caller.read)],
        limit: Annotated[int, Query(ge=1, le=MOST_BATCHES)] = 20,
        after: str | None = None,
    ) -> BatchList:
        """The batches, newest first."""
        return batch_list(batches.list(tenant.id, limit=limit, after=after))

    @router.get("/{batch_id}")
    def read(tenant: Annotated[Tenant, Depends(caller.read)], batch_id: str) -> BatchObject:
        """Where a batch is: its status, counts, files, and pace."""
        return batch_object(batches.read(tenant.id, batch_id))

    @router.post("/{batch_id}/cancel")
    def cancel(tenant: Annotated[Tenant, Depends(caller.write)], batch_id: str) -> BatchObject:
        """Stop a batch; what is answered by then stays available."""
        return batch_object(batches.cancel(tenant.id, batch_id))

    @router.delete("/{batch_id}")
    def delete(tenant: Annotated[Tenant, Depends(caller.write)], batch_id: str) -> BatchDeleted:
        """Delete a batch that has ended, with its answers, output file and error file."""
        batches.delete(tenant.id, batch_id)
        return BatchDeleted(id=batch_id)

    return router


def is_retry(retry_count: str) -> bool:
    """Whether the stock SDK sends a request again, by its header."""
    return retry_count.strip() not in ("", "0")


def brake_wish(body: FailureBrake | None) -> Brake | None:
    return Brake(body.share, body.after) if body else None


def wish_of(body: BatchCreate) -> Wish:
    """What a checked body asks for."""
    expiry = body.output_expires_after
    return Wish(
        input_file_id=body.input_file_id,
        endpoint=body.endpoint,
        completion_window=body.completion_window,
        window_s=window_seconds(body.completion_window),
        metadata=body.metadata,
        output_expires_after_s=expiry.seconds if expiry else None,
        priority=Priority(body.priority),
        brake=brake_wish(body.failure_brake),
        dry_run=body.dry_run,
        strict=body.strict,
        table=body.table.stored() if body.table else None,
        cache=CacheMode(body.cache) if body.cache else None,
        cascade=body.cascade.model_dump() if body.cascade else None,
        near_distance=body.near_duplicates.distance if body.near_duplicates else None,
    )
