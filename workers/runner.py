"""Run one chunk: claim its jobs, read their images, ask the engine, record what came of it."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import structlog

from app import telemetry, tracing
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import FatalWork, InvalidWork, TransientWork, WorkError
from app.planner import Lane
from app.states import GiveUp, Priority, RetryPolicy, after_error
from app.store import images, jobs
from app.store.jobs import ClaimedJob, Held
from app.store.records import FailureRow, ReturnRow
from workers.answers import outcome_of, storable
from workers.boarding import Boarding
from workers.engine.base import Answer, Image, Request
from workers.hangups import HangUps
from workers.leases import Leases
from workers.outages import through_outages
from workers.pool import EnginePool
from workers.recording import Outcome, Recorder
from workers.requests import Uses, expect_uses, read_request
from workers.shared_time import Meter
from workers.telling import Teller
from workers.timing import trace_answers, trace_outcomes
from workers.warming import tell_warmth

log = structlog.get_logger()

ImageReader = Callable[[images.ImageRow], Image]
T = TypeVar("T")


class Runner:
    """Runs chunks from any number of threads; knows nothing of the broker and nothing of the model.

    Without a teller nobody hears of an answer before it is recorded, and without `hang_ups` a request goes on
    when its caller has gone.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        pool: EnginePool,
        leases: Leases,
        read_image: ImageReader,
        readers: Executor,
        urgent_readers: Executor,
        settings: Settings,
        worker: str,
        teller: Teller | None = None,
        hang_ups: HangUps | None = None,
        spread: Callable[[], float] = random.random,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sessions = sessions
        self._pool = pool
        self._leases = leases
        self._read_image = read_image
        self._readers = readers
        self._urgent_readers = urgent_readers
        self._settings = settings
        self._worker = worker
        self._teller = teller
        self._hang_ups = hang_ups
        self._policy = RetryPolicy(attempts=settings.job_attempts)
        self._spread = spread
        self._pause = pause
        self._given_up: Future[None] = Future()
        self._recorder = Recorder(sessions=sessions, pool=pool, settings=settings, teller=teller)
        self._boarding = Boarding(
            sessions=sessions, leases=leases, settings=settings, worker=worker, pause=pause
        )

    def run(self, job_ids: Sequence[int], lane: Lane | None = None) -> int:
        """Run those of the jobs that are still to be run; how many outcomes were recorded.

        A message delivered twice claims nothing. Whatever happens here, the jobs' leases bring back what was
        not recorded. `lane` tells what the chunk must wait for; without it, it is one of the first model's.
        """
        with self._boarding.turn(job_ids, lane or Lane(next(iter(self._pool.residents)))) as came:
            return self._run(job_ids) if came else 0

    def drain(self) -> None:
        """Begin no more chunks: those that wait for their turn go back."""
        self._boarding.close()

    def give_up(self) -> None:
        """Wait for no more answers: jobs that have none go back, and this try does not count."""
        if not self._given_up.done():
            self._given_up.set_result(None)

    def _run(self, job_ids: Sequence[int]) -> int:
        claimed = self._claim(job_ids)
        if not claimed:
            return 0
        held = _held(claimed)
        with self._leases.holding(held), self._telling(held):
            outcomes = self._outcomes(claimed)
            trace_outcomes(outcomes)
            # Finished answers are kept until the leases end: then others may run the jobs again.
            with tracing.step("record"):
                return self._through_outages(
                    "record",
                    lambda: self._recorder.record(claimed, outcomes),
                    left_s=lambda: self._leases.left_s(held),
                )

    @contextmanager
    def _telling(self, held: Sequence[Held]) -> Iterator[None]:
        try:
            yield
        finally:
            if self._teller is not None:
                self._teller.forget(held)

    def _claim(self, job_ids: Sequence[int]) -> list[ClaimedJob]:
        patience = time.monotonic() + self._settings.lease_s
        with tracing.step("claim") as step:
            claimed = self._through_outages(
                "claim", lambda: self._claim_once(job_ids), left_s=lambda: patience - time.monotonic()
            )
            step.note(jobs=len(claimed))
        waits = telemetry.STAGE_SECONDS.labels("queue")
        for job in claimed:
            waits.observe(job.waited_s)
        log.info("chunk_claimed", jobs=len(claimed), given=len(job_ids))
        return claimed

    def _outcomes(self, claimed: Sequence[ClaimedJob]) -> list[Outcome]:
        """One outcome for each job, whatever is raised on the way."""
        pictures = self._start_reading(claimed)
        with closing(Meter()) as meter:
            begun = time.monotonic()
            with tracing.stage("read"):
                answers = [self._submit(job, pictures, meter) for job in claimed]
            with telemetry.stage("engine"), self._watching(claimed, answers):
                self._await(answers, meter)
            trace_answers(claimed, answers, begun=begun)
        return [
            self._outcome(job, answer, meter.seconds(answer))
            for job, answer in zip(claimed, answers, strict=True)
        ]

    @contextmanager
    def _watching(self, claimed: Sequence[ClaimedJob], answers: "Sequence[Future[Answer]]") -> Iterator[None]:
        """Who hangs up on an interactive job ends its request."""
        pairs = zip(claimed, answers, strict=True)
        watched = {job.id: answer for job, answer in pairs if job.priority is Priority.INTERACTIVE}
        if self._hang_ups is None or not watched:
            yield
            return
        with self._hang_ups.watching(watched):
            yield

    def _start_reading(self, claimed: Sequence[ClaimedJob]) -> Mapping[int, "Future[Image]"]:
        if not any(job.image_ids for job in claimed):
            return {}
        held = _held(claimed)
        rows, uses = self._through_outages(
            "look_up", lambda: self._look_up(claimed), left_s=lambda: self._leases.left_s(held)
        )
        urgent = any(job.priority is Priority.INTERACTIVE for job in claimed)
        readers = self._urgent_readers if urgent else self._readers
        return {image_id: readers.submit(self._read, row, uses[image_id]) for image_id, row in rows.items()}

    def _look_up(self, claimed: Sequence[ClaimedJob]) -> tuple[dict[int, images.ImageRow], dict[int, Uses]]:
        wanted = sorted({image_id for job in claimed for image_id in job.image_ids})
        with transaction(self._sessions) as session:
            awaited = jobs.awaited_images(
                session,
                wanted,
                models=sorted({job.model for job in claimed}),
                batch_ids=sorted({job.batch_id for job in claimed if job.batch_id is not None}),
                tenant_ids=sorted({job.tenant_id for job in claimed}),
            )
            return images.read_images(session, wanted), expect_uses(claimed, awaited)

    def _read(self, row: images.ImageRow, uses: Uses) -> Image:
        return uses.of(self._read_image(row))

    def _submit(
        self, job: ClaimedJob, pictures: Mapping[int, "Future[Image]"], meter: Meter
    ) -> "Future[Answer]":
        """Hand a job to the engine once its images are decoded; what prevents that is in the future."""
        try:
            if missing := [image_id for image_id in job.image_ids if image_id not in pictures]:
                raise InvalidWork("image_deleted", f"{len(missing)} of the job's images were deleted.")
            decoded = tuple(pictures[image_id].result() for image_id in job.image_ids)
            resident = self._pool.resident(job.model)
            answer = resident.engine.submit(self._request(job, decoded, resident.settings))
            meter.begin(answer, resident.time)
            return answer
        except Exception as error:  # one job's fault must not take its chunk along
            refused: Future[Answer] = Future()
            refused.set_exception(error)
            return refused

    def _request(self, job: ClaimedJob, decoded: tuple[Image, ...], settings: Settings) -> Request:
        return read_request(
            job,
            decoded,
            settings,
            deadline=None if job.left_s is None else time.monotonic() + job.left_s,
            on_text=self._teller.listener(job) if self._teller is not None else None,
        )

    def _await(self, answers: "Sequence[Future[Answer]]", meter: Meter) -> None:
        """Wait for all, as long as one of them comes within every `job_timeout_s`; then drop the rest."""
        pending = set(answers)
        while pending:
            waited: set[Future[Any]] = {*pending, self._given_up}
            done, _ = wait(waited, self._settings.job_timeout_s, return_when=FIRST_COMPLETED)
            pending -= done
            meter.end(done)
            if not done or self._given_up in done:
                for answer in pending:
                    answer.cancel()
                return

    def _outcome(self, job: ClaimedJob, future: "Future[Answer]", model_s: float) -> Outcome:
        try:
            answer = future.result(timeout=0)
        except (FutureTimeout, CancelledError):
            if self._given_up.done():
                return ReturnRow(job.id, job.attempt, 0.0, counts=False)
            timeout_s = self._settings.job_timeout_s
            return self._after_error(job, TransientWork("job_timeout", f"No answer within {timeout_s:g} s."))
        except WorkError as error:
            return self._after_error(job, error)
        except Exception as error:  # a fault of ours: reported, and tried again
            return self._after_error(job, self._fault(job, error))
        return outcome_of(job, tell_warmth(job, answer), model_s=model_s)

    def _fault(self, job: ClaimedJob, error: Exception) -> FatalWork:
        log.error("job_faulted", job=job.id, attempt=job.attempt, exc_info=error)
        return FatalWork("internal_error", f"The worker met an unexpected {type(error).__name__}.")

    def _after_error(self, job: ClaimedJob, error: WorkError) -> Outcome:
        if error.code == "engine_closed":
            return ReturnRow(job.id, job.attempt, 0.0, counts=False)
        match after_error(error, attempt=job.tries, policy=self._policy, spread=self._spread()):
            case GiveUp(code, message):
                return FailureRow(job.id, job.attempt, code, storable(message))
            case again:
                log.warning("job_retried", job=job.id, attempt=job.attempt, code=error.code)
                telemetry.JOBS_RETURNED.labels(error.code).inc()
                return ReturnRow(job.id, job.attempt, again.after_s, again.counts)

    def _claim_once(self, job_ids: Sequence[int]) -> list[ClaimedJob]:
        with transaction(self._sessions) as session:
            return jobs.claim(session, job_ids, worker=self._worker, lease_s=self._settings.lease_s)

    def _through_outages(self, stage: str, move: Callable[[], T], *, left_s: Callable[[], float]) -> T:
        return through_outages(stage, move, left_s=left_s, pause=self._pause)


def _held(claimed: Sequence[ClaimedJob]) -> list[Held]:
    return [Held(job.id, job.attempt) for job in claimed]
