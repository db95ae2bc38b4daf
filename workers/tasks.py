"""The Celery tasks: one call each."""

from collections.abc import Sequence
from typing import Protocol

from celery import Celery, Task
from structlog.contextvars import bound_contextvars

from app.queue import RUN_CHUNK


class RunsChunks(Protocol):
    def run(self, job_ids: Sequence[int]) -> int: ...


def register(celery: Celery, runner: RunsChunks) -> None:
    """Make the runner the body of the chunk task. The message id is the chunk's id."""

    def run_chunk(task: Task, job_ids: list[int]) -> None:
        with bound_contextvars(chunk=task.request.id):
            runner.run([int(job_id) for job_id in job_ids])

    celery.task(run_chunk, name=RUN_CHUNK, bind=True)
