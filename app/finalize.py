"""Writes the output and error files of batches whose jobs have all ended, and brings these to their end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from threading import Event

import structlog
from sqlalchemy.orm import Session

from app import telemetry, tracing
from app.ahead import ahead
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import FatalWork
from app.ids import file_key, result_file_id
from app.objects import ObjectStore
from app.results import error_line, output_line
from app.store import events, usage
from app.store import results as store
from app.store.results import FinalizeTask, ResultFile

log = structlog.get_logger()

PAGE_JOBS = 2_000
CONTENT_TYPE = "application/jsonl; charset=utf-8"

# A page of result lines, each behind the number of its input line.
Page = Sequence[tuple[int, bytes]]
ReadPage = Callable[[Session, str, int, int], Page]


class Stopped(Exception):
    """The process ends: the file in hand is given up, and leaves nothing behind in the object store."""


class Finalize:
    """One batch per `step`. Whatever dies in the middle, the batch is taken again and gets the same bytes.

    `stopping` ends a step after the page in hand. With `most_jobs`, larger batches are left to others.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        settings: Settings,
        stopping: Event | None = None,
        page_jobs: int = PAGE_JOBS,
        most_jobs: int | None = None,
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._lease_s = settings.lease_s
        self._stopping = stopping or Event()
        self._page_jobs = page_jobs
        self._most_jobs = most_jobs

    def step(self) -> bool:
        """Finish one batch; False when none is ready for it. Raises what the servers we stand on raise."""
        with transaction(self._sessions) as session:
            task = store.take_ended(session, lease_s=self._lease_s, most_jobs=self._most_jobs)
        if task is None:
            return False
        try:
            with (
                telemetry.stage("finalize"),
                tracing.follow(
                    "finalize", task.trace, batch=task.id, completed=task.completed, failed=task.failed
                ),
            ):
                self._finish(task)
        except Stopped:
            with transaction(self._sessions) as session:
                store.renew_lease(session, task.id, lease_s=0)
            log.info("finalize_stopped", batch=task.id)
        return True

    def _finish(self, task: FinalizeTask) -> None:
        output = self._write(task, "output", task.completed, partial(_read_output, task.endpoint))
        errors = self._write(task, "error", task.failed, _read_errors)
        with transaction(self._sessions) as session:
            ended = store.end_batch(
                session,
                task,
                output_file_id=output.id if output else None,
                error_file_id=errors.id if errors else None,
            )
            # Where somebody else was first, its owner may have deleted a file by now.
            if ended:
                store.note_files(session, [file for file in (output, errors) if file])
                events.tell_end(session, task.id)
                usage.meter_end(session, task.id)
        log.info(
            "batch_ended",
            batch=task.id,
            status=task.ending.value,
            completed=task.completed,
            failed=task.failed,
        )

    def _write(self, task: FinalizeTask, part: str, lines: int, read: ReadPage) -> ResultFile | None:
        """Put one of the two files into the object store; none where it would be empty."""
        if not lines:
            return None
        file_id = result_file_id(task.id, part)
        key = file_key(task.tenant_id, file_id)
        with closing(ahead(self._lines(task, lines, read))) as pages:
            size = self._objects.put_stream(key, pages, content_type=CONTENT_TYPE)
        return ResultFile(
            id=file_id,
            tenant_id=task.tenant_id,
            filename=f"{task.id}_{part}.jsonl",
            content_type=CONTENT_TYPE,
            bytes=size,
            object_key=key,
            expires_after_s=task.output_expires_after_s,
        )

    def _lines(self, task: FinalizeTask, expected: int, read: ReadPage) -> Iterator[bytes]:
        """The file in pages, each read in a transaction of its own, since its writing takes its time."""
        count, last_line = 0, 0
        while True:
            with transaction(self._sessions) as session:
                store.renew_lease(session, task.id, lease_s=self._lease_s)
                page = read(session, task.id, last_line, self._page_jobs)
            if not page:
                break
            count, last_line = count + len(page), page[-1][0]
            yield b"".join(line for _, line in page)
            if self._stopping.is_set():
                raise Stopped
        if count != expected:
            raise FatalWork("counts_differ", f"Batch {task.id} has {count} lines where it counts {expected}.")


def _read_output(endpoint: str, session: Session, batch_id: str, after_line: int, limit: int) -> Page:
    jobs = store.read_answered(session, batch_id, after_line=after_line, limit=limit)
    return [(job.line, output_line(job, endpoint)) for job in jobs]


def _read_errors(session: Session, batch_id: str, after_line: int, limit: int) -> Page:
    jobs = store.read_unanswered(session, batch_id, after_line=after_line, limit=limit)
    return [(job.line, error_line(job)) for job in jobs]
