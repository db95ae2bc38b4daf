"""Direct jobs over HTTP: post one, poll it."""

from typing import Annotated

from fastapi import APIRouter, Depends

from app.answer_keys import CacheMode
from app.auth import Tenant
from app.jobs import Jobs, JobWish
from app.lines import MAX_LINE_BYTES
from app.routes.bodies import IdempotencyKey, documented, json_body
from app.routes.caller import Caller
from app.routes.render import job_object
from app.schemas import JobCreate, JobDeleted, JobObject
from app.states import Priority

PARAMS = {
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "response_format",
    "structured_outputs",
    "guided_choice",
}


def job_routes(*, jobs: Jobs, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
    # What a line of a batch may be, a job posted straight may be too.
    read_body = json_body(JobCreate, max_bytes=MAX_LINE_BYTES)

    @router.post("", status_code=202, openapi_extra=documented(JobCreate))
    def submit(
        tenant: Annotated[Tenant, Depends(caller.write)],
        body: Annotated[JobCreate, Depends(read_body)],
        idempotency_key: IdempotencyKey = None,
    ) -> JobObject:
        """Ask one question about some images, or none. Poll the job for its answer."""
        return job_object(jobs.submit(tenant.id, _wish(body), idempotency_key=idempotency_key))

    @router.get("/{job_id}")
    def read(tenant: Annotated[Tenant, Depends(caller.read)], job_id: str) -> JobObject:
        """Where a job is, and its answer or error once it has ended."""
        return job_object(jobs.read(tenant.id, job_id))

    @router.delete("/{job_id}")
    def delete(tenant: Annotated[Tenant, Depends(caller.write)], job_id: str) -> JobDeleted:
        """Delete a job that has ended, with its answer."""
        jobs.delete(tenant.id, job_id)
        return JobDeleted(id=job_id)

    return router


def _wish(body: JobCreate) -> JobWish:
    single = [] if body.image is None else [body.image]
    several = body.images or []
    return JobWish(
        question=body.question,
        images=single + several,
        image_params=["image"] * len(single) + [f"images[{number}]" for number in range(len(several))],
        system=body.system,
        model=body.model,
        params=body.model_dump(include=PARAMS, exclude_none=True),
        deadline_s=body.deadline_s,
        priority=Priority(body.priority),
        cache=CacheMode(body.cache) if body.cache else None,
    )
