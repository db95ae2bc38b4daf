"""A batch that is played through every way in which its jobs, and it itself, may come to an end."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from sqlalchemy.orm import Session

from app.db import transaction
from app.errors import LineError
from app.finalize import Finalize
from app.ingest import Ingest
from app.progress import Progress
from app.states import ENDED_BATCH
from app.store import images, lost
from app.store.images import FetchTask, StoredImage
from app.store.jobs import ClaimedJob
from app.store.records import FailureRow, ReturnRow, hand_back, record_failures
from app.store.watch import stop_batch
from app.sweep import Sweeper
from tests.desk import Desk

# What may happen at any time and any number of times, and what closes a batch.
STEPS = (
    "ingest",
    "answer",
    "fail",
    "take",
    "record",
    "give_back",
    "lapse",
    "fetch",
    "fetch_badly",
    "sweep",
    "finalize",
    "poll",
)
CLOSINGS = ("cancel", "expire", "stop")
CODES = ("out_of_memory", "http_403", "bad_prompt")
PICTURE = StoredImage("a" * 64, "PNG", 1, 1, 70)


@dataclass
class Play:
    """`taken` are the jobs in a worker's hands, `seen` what a client has polled: number and custom_id."""

    desk: Desk
    ingest_loop: Ingest
    finalize_loop: Finalize
    sweeper: Sweeper
    batch_id: str
    random: Random
    taken: list[ClaimedJob] = field(default_factory=list)
    seen: list[tuple[int, str | None]] = field(default_factory=list)

    def do(self, *steps: str) -> None:
        for step in steps:
            getattr(self, step)()

    def end(self) -> None:
        """Bring whatever is open to its end."""
        for _ in range(50):
            self.do("ingest", "fetch", "record", "answer", "lapse", "sweep", "finalize")
            if self.desk.status(self.batch_id) in ENDED_BATCH:
                break
        else:
            raise AssertionError(self.desk.batch(self.batch_id))
        while self.poll():
            pass

    def ingest(self) -> None:
        self.ingest_loop.step()

    def answer(self) -> None:
        self.desk.answer(self.batch_id, count=3)
        self.desk.answer(self.batch_id, count=1)  # one that must travel alone

    def fail(self) -> None:
        claimed = self.desk.claim(self.batch_id, count=2)
        rows = [FailureRow(job.id, job.attempt, self.random.choice(CODES), "No.") for job in claimed]
        with transaction(self.desk.sessions) as session:
            record_failures(session, rows)

    def take(self) -> None:
        self.taken += self.desk.claim(self.batch_id, count=2)

    def record(self) -> None:
        """What is in hand is answered, though its lease may have run out meanwhile."""
        self.desk.record(self.taken)
        self.taken = []

    def give_back(self) -> None:
        rows = [ReturnRow(job.id, job.attempt, 0, counts=False) for job in self.taken]
        with transaction(self.desk.sessions) as session:
            hand_back(session, rows)

    def lapse(self) -> None:
        self.desk.execute("UPDATE jobs SET lease_until = now() - interval '1 s' WHERE state = 'running'")
        with transaction(self.desk.sessions) as session:
            lost.take_back_lapsed(session, crash_attempts=2)

    def fetch(self) -> None:
        self._fetch(lambda session, task: images.record_stored(session, task, PICTURE))

    def fetch_badly(self) -> None:
        self._fetch(lambda session, task: images.record_failed(session, task, "http_404", "No."))

    def sweep(self) -> None:
        self.sweeper.step()

    def finalize(self) -> None:
        self.finalize_loop.step()

    def poll(self) -> bool:
        """Read on; whether there was anything."""
        progress = Progress(sessions=self.desk.sessions)
        after, limit = (self.seen[-1][0] if self.seen else 0), self.random.randint(1, 5)
        page = progress.results(self.desk.tenant, self.batch_id, after=after, limit=limit)
        self.seen += [(result.seq, result.job.custom_id) for result in page.results]
        return bool(page.results)

    def cancel(self) -> None:
        with suppress(AssertionError):  # it is closed already
            self.desk.cancel(self.batch_id)

    def expire(self) -> None:
        self.desk.pass_deadline(self.batch_id)

    def stop(self) -> None:
        with transaction(self.desk.sessions) as session:
            stop_batch(session, self.batch_id, LineError("too_many_failures", "Stopped."))

    def _fetch(self, record: Callable[[Session, FetchTask], object]) -> None:
        with transaction(self.desk.sessions) as session:
            for task in images.claim_fetches(session, limit=1, lease_s=60, per_host=9, active={}):
                record(session, task)
