"""Brings a run to its end: its answers noted with their images, written where they belong, and told of."""

from collections.abc import Iterator, Mapping, Sequence

from app import telemetry
from app.db import Sessions, transaction
from app.exports.opening import Columns, Exports, ExportWish, Format
from app.objects import ObjectStore
from app.store import events, sweep_items, sweep_runs
from app.store.sweep_items import Answered, AnsweredJob, BatchEnd
from app.store.sweep_runs import RunTask
from app.sweeps.questions import Asking, split_id

PAGE_JOBS = 2_000
COMPLETED, FAILED = "completed", "failed"


class Collector:
    def __init__(self, *, sessions: Sessions, objects: ObjectStore, exports: Exports, lease_s: float) -> None:
        self._sessions = sessions
        self._objects = objects
        self._exports = exports
        self._lease_s = lease_s
        for state in (COMPLETED, FAILED):
            telemetry.SWEEP_RUNS.labels(state)  # before the first: Prometheus sees increases only

    def ends(self, task: RunTask) -> list[BatchEnd]:
        """How the run's batches stand."""
        with transaction(self._sessions) as session:
            return [sweep_items.read_end(session, batch) for batch in task.batch_ids]

    def finish(self, task: RunTask, ends: Sequence[BatchEnd]) -> None:
        """Note what was answered, each answer once whatever dies in the middle; then end the run."""
        for part, batch_id in enumerate(task.batch_ids):
            if part >= task.cursor["part"]:
                self._note(task, part, batch_id)
        self._deliver(task)
        counts = {name: sum(getattr(end, name) for end in ends) for name in (COMPLETED, FAILED)}
        wrong = [
            f"Batch {batch} is {end.status}."
            for batch, end in zip(task.batch_ids, ends, strict=True)
            if end.status != COMPLETED
        ]
        if wrong:
            self.end(task, FAILED, code="batch_not_completed", message=wrong[0], counts=counts)
        else:
            self.end(task, COMPLETED, counts=counts)

    def end(
        self,
        task: RunTask,
        state: str,
        *,
        code: str | None = None,
        message: str | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """The run's last state, and the event that tells it."""
        with transaction(self._sessions) as session:
            sweep_runs.end_run(session, task, state, code=code, message=message, counts=counts)
            told = {"id": task.id, "sweep_id": task.sweep.id, "name": task.sweep.name}
            events.tell(session, task.sweep.tenant_id, f"sweep.run.{state}", told)
        telemetry.SWEEP_RUNS.labels(state).inc()

    def _note(self, task: RunTask, part: int, batch_id: str) -> None:
        asking = Asking(task.spec)
        line = task.cursor["line"] if part == task.cursor["part"] else 0
        while True:
            with transaction(self._sessions) as session:
                jobs = sweep_items.read_answers(session, batch_id, after=line, limit=PAGE_JOBS)
                if not jobs:
                    return
                line = jobs[-1].line
                sweep_runs.hold_run(session, task, lease_s=self._lease_s)
                keys = {split_id(job.custom_id)[0] for job in jobs} if asking.columns else ()
                given = answered(jobs, asking, sweep_items.read_cells(session, task.sweep.id, list(keys)))
                differing = sweep_items.note_answers(session, task.sweep.id, task.id, given)
                sweep_runs.note_cursor(
                    session, task, {"part": part, "line": line}, differing=differing, lease_s=self._lease_s
                )

    def _deliver(self, task: RunTask) -> None:
        """The answers as files in the sweep's bucket, under names that the run fixes."""
        to = task.sweep.destination
        if to is None:
            return
        bucket, folder = read_destination(to["prefix"])
        wish = ExportWish(Format(to["format"]), columns=Columns.ANSWERS)
        for part, batch_id in enumerate(task.batch_ids):
            made = self._exports.open(task.sweep.tenant_id, batch_id, wish)
            number = f"-{part + 1}" if len(task.batch_ids) > 1 else ""
            name = f"{task.due_at:%Y-%m-%dT%H%M%SZ}-{task.id}{number}.{to['format']}"
            self._objects.put_stream(
                f"{folder}{task.sweep.name}/{name}",
                self._holding(task, made.blocks),
                content_type=made.content_type,
                bucket=bucket,
            )

    def _holding(self, task: RunTask, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for number, block in enumerate(blocks):
            if number % 100 == 0:
                self._hold(task)
            yield block
        # The last word before the file appears.
        self._hold(task)

    def _hold(self, task: RunTask) -> None:
        with transaction(self._sessions) as session:
            sweep_runs.hold_run(session, task, lease_s=self._lease_s, mark=1)


def read_destination(prefix: str) -> tuple[str, str]:
    """Bucket and folder behind `s3://bucket/folder`, whether a slash ends it or not."""
    bucket, _, folder = prefix.removeprefix("s3://").partition("/")
    return bucket, folder if not folder or folder.endswith("/") else f"{folder}/"


def answered(
    jobs: Sequence[AnsweredJob], asking: Asking, cells: Mapping[str, Mapping[str, str]]
) -> list[Answered]:
    """The answers of some jobs by image; those to questions that the run did not ask are none of its.

    `cells` are those that the run has listed: what its questions were filled with.
    """
    found: dict[str, Answered] = {}
    for job in jobs:
        key, question = split_id(job.custom_id)
        if question not in asking.names:
            continue
        earlier = found.get(key) or Answered(key, None, {}, {})
        found[key] = Answered(
            key,
            job.content_hash or earlier.content_hash,
            {**earlier.asked, question: asking.hashes(cells.get(key, {}))[question]},
            {**earlier.answers, question: job.text},
        )
    return [found[key] for key in sorted(found)]
