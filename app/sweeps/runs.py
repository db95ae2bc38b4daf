"""Takes runs of sweeps from state to state: list, check, write and submit, wait, note. A turn per step."""

from threading import Event

import structlog
from sqlalchemy.orm import Session

from app import telemetry
from app.actor import acting
from app.answer_keys import CacheMode
from app.batches import Batches, Wish, make_batches
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import InvalidWork, Overloaded, RequestError, TransientWork, Unavailable
from app.exports.opening import Exports
from app.files import BATCH, BATCH_FILE_S
from app.ids import file_key
from app.limits import make_limits
from app.objects import ObjectStore
from app.states import Endpoint, Priority
from app.store import sweep_items, sweep_runs, sweeps
from app.store.files import NewFile, insert_file
from app.store.sweep_runs import LostRun, RunTask
from app.sweeps.checking import ContentCheck
from app.sweeps.collecting import COMPLETED, FAILED, Collector
from app.sweeps.questions import Asking
from app.sweeps.sources import Sources
from app.sweeps.writing import CONTENT_TYPE, Part, Writer
from app.windows import window_seconds

log = structlog.get_logger()

DELETE_ROWS = 5_000
POLL_S = 1.0  # while others work for it
AGAIN_AFTER_S = 15.0  # what was refused or away
# A fetcher that takes longer holds the whole run up: what is changed is then asked about again.
CHECK_WAIT_S = 600.0


class Stopped(Exception):
    """The process ends: the turn is given up."""


class Runs:
    """One turn of one run per `step`; who dies in the middle leaves it to the next, from its state on.

    `stopping` ends a turn after the page in hand.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        batches: Batches,
        collector: Collector,
        sources: Sources,
        settings: Settings,
        stopping: Event | None = None,
    ) -> None:
        self._sessions = sessions
        self._batches = batches
        self._collector = collector
        self._sources = sources
        self._lease_s = settings.lease_s
        self._writer = Writer(sessions=sessions, objects=objects, settings=settings)
        self._check = ContentCheck(sessions=sessions, lease_s=settings.lease_s)
        self._stopping = stopping or Event()

    def step(self) -> bool:
        """Give one run its turn, or remove rows of a deleted sweep; False where there is nothing to do."""
        with transaction(self._sessions) as session:
            task = sweep_runs.take_run(session, lease_s=self._lease_s)
            if task is None:
                return sweeps.delete_rows(session, limit=DELETE_ROWS) > 0
        try:
            self._try(task)
        except LostRun:
            log.info("sweep_run_lost", run=task.id, state=task.state)
        return True

    def _try(self, task: RunTask) -> None:
        try:
            self._turn(task)
        except Stopped:
            self._give_back(task, after_s=0)
        except (TransientWork, Overloaded, Unavailable) as error:
            log.warning("sweep_run_waits", run=task.id, state=task.state, reason=str(error))
            self._give_back(task, after_s=AGAIN_AFTER_S)
        except (InvalidWork, RequestError) as error:
            log.warning("sweep_run_failed", run=task.id, state=task.state, reason=str(error))
            self._fail(task, error)

    def _turn(self, task: RunTask) -> None:
        match task.state:
            case "listing":
                self._list(task)
            case "checking":
                self._ask(task)
            case "submitting":
                self._submit(task)
            case _:
                self._await(task)

    def _list(self, task: RunTask) -> None:
        sweep_id = task.sweep.id
        for page in self._sources.pages(task.sweep.source, columns=Asking(task.spec).columns):
            with transaction(self._sessions) as session:
                sweep_runs.hold_run(session, task, lease_s=self._lease_s, mark=max(1, len(page)))
                sweep_items.see(session, sweep_id, task.id, task.attempt, page)
            self._keep_on()
        with transaction(self._sessions) as session:
            sweep_runs.hold_run(session, task, lease_s=self._lease_s, mark=1)
            sweep_items.mark_missing(session, sweep_id, task.id, task.attempt)
        self._check.begin(task)
        with transaction(self._sessions) as session:
            sweep_runs.note_listed(session, task)
            sweep_runs.give_back(session, task, after_s=0)

    def _ask(self, task: RunTask) -> None:
        if self._check.settle(task) and task.waited_s < CHECK_WAIT_S:
            self._give_back(task, after_s=POLL_S)
            return
        with transaction(self._sessions) as session:
            found = sweep_items.count_changes(session, task.sweep.id, task.id)
            sweep_runs.note_counts(session, task, found)
        for change, images in found.items():
            telemetry.SWEEP_IMAGES.labels(change).inc(images)
        parts = self._writer.write(task, self._keep_on)
        if not parts:
            self._collector.end(task, COMPLETED)
            return
        with transaction(self._sessions) as session:
            for part in parts:
                insert_file(session, _new_file(task, part))
            sweep_runs.note_parts(session, task, [part.said() for part in parts])
            sweep_runs.give_back(session, task, after_s=0)

    def _submit(self, task: RunTask) -> None:
        """Each file's batch, noted as it is made: there is none that its run does not know."""
        made = len(task.batch_ids)
        for number, part in enumerate(task.parts[made:], made):
            is_last = number + 1 == len(task.parts)

            def note(session: Session, batch_id: str, *, is_last: bool = is_last) -> None:
                sweep_runs.note_batch(session, task, batch_id, is_last=is_last, lease_s=self._lease_s)

            with acting(task.id) as who:
                who.tenant_id, who.key_id = task.sweep.tenant_id, task.sweep.key_id
                self._batches.submit(
                    task.sweep.tenant_id,
                    batch_wish(task, part["file_id"]),
                    idempotency_key=f"{task.id}.{number}",
                    along=note,
                )
        self._give_back(task, after_s=0)
        log.info("sweep_run_submitted", run=task.id, batches=len(task.parts))

    def _await(self, task: RunTask) -> None:
        ends = self._collector.ends(task)
        if all(end.ended for end in ends):
            self._collector.finish(task, ends)
            log.info("sweep_run_ended", run=task.id)
            return
        with transaction(self._sessions) as session:
            done = sum(end.completed + end.failed for end in ends)
            sweep_runs.note_done(session, task, done, after_s=POLL_S)

    def _give_back(self, task: RunTask, *, after_s: float) -> None:
        with transaction(self._sessions) as session:
            sweep_runs.give_back(session, task, after_s=after_s)

    def _fail(self, task: RunTask, error: InvalidWork | RequestError) -> None:
        self._collector.end(task, FAILED, code=error.code or "sweep_failed", message=error.message)

    def _keep_on(self) -> None:
        if self._stopping.is_set():
            raise Stopped


def make_runs(
    settings: Settings, *, sessions: Sessions, objects: ObjectStore, stopping: Event | None = None
) -> Runs:
    """The runs of a dispatcher process, from its settings."""
    exports = Exports(sessions=sessions, objects=objects, image_max_bytes=settings.image_max_bytes)
    return Runs(
        sessions=sessions,
        objects=objects,
        batches=make_batches(sessions, make_limits(sessions, settings), settings),
        collector=Collector(sessions=sessions, objects=objects, exports=exports, lease_s=settings.lease_s),
        sources=Sources(objects=objects, settings=settings),
        settings=settings,
        stopping=stopping,
    )


def batch_wish(task: RunTask, file_id: str) -> Wish:
    """The batch of one of a run's files; `sweep.batch` has what the sweep's owner wishes besides."""
    window, wishes = task.sweep.completion_window, task.sweep.batch
    return Wish(
        input_file_id=file_id,
        endpoint=Endpoint.CHAT.value,
        completion_window=window,
        window_s=window_seconds(window),
        metadata={
            "name": task.sweep.name,
            "vqueue_sweep": task.sweep.id,
            "vqueue_sweep_run": task.id,
            "vqueue_policy_version": task.policy_version,
        },
        output_expires_after_s=None,
        priority=Priority(wishes.get("priority") or Priority.STANDARD),
        cache=CacheMode(wishes["cache"]) if wishes.get("cache") else None,
        cascade=wishes.get("cascade"),
        near_distance=(wishes.get("near_duplicates") or {}).get("distance"),
    )


def _new_file(task: RunTask, part: Part) -> NewFile:
    return NewFile(
        id=part.file_id,
        tenant_id=task.sweep.tenant_id,
        purpose=BATCH,
        filename=f"{task.id}.jsonl",
        content_type=CONTENT_TYPE,
        bytes=part.bytes,
        object_key=file_key(task.sweep.tenant_id, part.file_id),
        expires_after_s=BATCH_FILE_S,
    )
