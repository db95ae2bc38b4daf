"""What is ours of batches over HTTP: results while they run, what failed of what, retries."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from app.auth import Tenant
from app.progress import Progress
from app.retrying import Retries, RetryWish
from app.routes.batches import BODY_BYTES, RetryCount, brake_wish, is_retry
from app.routes.bodies import IdempotencyKey, documented, json_body
from app.routes.caller import Caller
from app.routes.render import batch_object, error_list, result_list
from app.routes.strict import STRICT
from app.schemas import BatchObject, BatchRetry, ErrorList, ResultList
from app.states import JobState, Priority
from app.windows import window_seconds

MOST_RESULTS = 1_000
MOST_JOBS = 2**30  # more than a batch can have


def progress_routes(*, progress: Progress, retries: Retries, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/batches/{batch_id}", tags=["batches"], dependencies=STRICT)
    read_body = json_body(BatchRetry, max_bytes=BODY_BYTES, empty=b"{}")

    @router.get("/results", response_model=ResultList)
    def read_results(
        tenant: Annotated[Tenant, Depends(caller.read)],
        batch_id: str,
        after: Annotated[int, Query(ge=0, le=MOST_JOBS)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_RESULTS)] = 100,
        status: Literal["completed", "failed"] | None = None,
    ) -> Response:
        """The results so far, in the order in which they ended, behind number `after`.

        With `status`, a page covers `limit` results and shows those that are so: go on from `last_seq`.
        """
        answered = None if status is None else status == "completed"
        page = progress.results(tenant.id, batch_id, after=after, limit=limit, answered=answered)
        return Response(result_list(page), media_type="application/json")

    @router.get("/errors")
    def read_errors(tenant: Annotated[Tenant, Depends(caller.read)], batch_id: str) -> ErrorList:
        """What the batch's jobs have failed of so far, the commonest first."""
        return error_list(progress.errors(tenant.id, batch_id))

    @router.post("/retry", openapi_extra=documented(BatchRetry))
    def retry(
        tenant: Annotated[Tenant, Depends(caller.write)],
        batch_id: str,
        body: Annotated[BatchRetry, Depends(read_body)],
        idempotency_key: IdempotencyKey = None,
        retry_count: RetryCount = "0",
    ) -> BatchObject:
        """A new batch of an ended batch's failed jobs. The same request sent again gives the same batch."""
        batch = retries.submit(
            tenant.id,
            batch_id,
            _wish(body),
            idempotency_key=idempotency_key,
            is_retry=is_retry(retry_count),
        )
        return batch_object(batch)

    return router


def _wish(body: BatchRetry) -> RetryWish:
    window, expiry = body.completion_window, body.output_expires_after
    return RetryWish(
        states=[JobState(state) for state in dict.fromkeys(body.states)],
        completion_window=window,
        window_s=window_seconds(window) if window else None,
        metadata=body.metadata,
        output_expires_after_s=expiry.seconds if expiry else None,
        priority=Priority(body.priority) if body.priority else None,
        brake=brake_wish(body.failure_brake),
    )
