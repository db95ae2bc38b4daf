"""The Celery tasks: one call each."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from celery import Celery, Task
from structlog.contextvars import bound_contextvars

from app import tracing
from app.planner import Lane
from app.queue import RUN_CHUNK, TRACES, read_traces


class RunsChunks(Protocol):
    def run(self, job_ids: Sequence[int], lane: Lane | None = None) -> int: ...


def register(celery: Celery, runner: RunsChunks, lanes: Mapping[str, Lane]) -> None:
    """Make the runner the body of the chunk task. The message id is the chunk's id.

    `lanes` tells by its queue what a chunk is; so its message need not say it, and never says it wrong.
    """

    def run_chunk(task: Task, job_ids: list[int]) -> None:
        queue = (task.request.delivery_info or {}).get("routing_key", "")
        traces = read_traces(task.request.get(TRACES))
        followed = tracing.follow(
            "run chunk", traces, kind="consumer", chunk=task.request.id, jobs=len(job_ids), queue=queue
        )
        with bound_contextvars(chunk=task.request.id), followed:
            runner.run([int(job_id) for job_id in job_ids], lanes.get(queue))

    celery.task(run_chunk, name=RUN_CHUNK, bind=True)
