"""What comes before a claim: a chunk waits for its turn, held in the books, or goes back without one."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import structlog

from app import telemetry
from app.config import Settings
from app.db import Sessions, transaction
from app.planner import Lane
from app.states import Priority
from app.store import holds, jobs
from workers.leases import Leases
from workers.outages import through_outages
from workers.turns import Turns

log = structlog.get_logger()

T = TypeVar("T")


class Boarding:
    """Lets chunks in, one turn each.

    What waits for long is queued still, but under a lease, so that nobody takes it for lost and sends it
    again; most get their turn before that is worth writing. A background chunk gives up after a while: an
    idle worker may be glad of it, and a broker limits how long a message may be in somebody's hands.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        leases: Leases,
        settings: Settings,
        worker: str,
        pause: Callable[[float], None],
    ) -> None:
        self._sessions = sessions
        self._leases = leases
        self._settings = settings
        self._worker = worker
        self._pause = pause
        self._turns = Turns(settings.worker_threads, kept_s=settings.turn_kept_s)

    @contextmanager
    def turn(self, job_ids: Sequence[int], lane: Lane) -> Iterator[bool]:
        """Wait for a turn and keep it while the block runs; False if none came, and the jobs are back."""
        with self._turns.place(lane, alone=self._travels_alone(job_ids)) as place:
            if place.wait(self._settings.lost_after_s / 4):
                yield True
                return
            held = self._through("hold", lambda: self._hold(job_ids))
            with self._leases.waiting(held):
                came = bool(held) and place.wait(self._patience_s(lane))
            if held and not came:
                self._through("hold", lambda: self._give_back(held))
            yield came

    def close(self) -> None:
        """Let nobody in any more: what waits goes back."""
        self._turns.close()

    def _patience_s(self, lane: Lane) -> float | None:
        return self._settings.lost_after_s / 4 if lane.priority is Priority.BACKGROUND else None

    def _travels_alone(self, job_ids: Sequence[int]) -> bool:
        """Asked before the claim: what is claimed is on board, and would be blamed for the next death."""
        return len(job_ids) == 1 and self._through("claim", lambda: self._is_alone(job_ids))

    def _is_alone(self, job_ids: Sequence[int]) -> bool:
        with transaction(self._sessions) as session:
            return jobs.must_travel_alone(session, job_ids)

    def _hold(self, job_ids: Sequence[int]) -> list[int]:
        with transaction(self._sessions) as session:
            return holds.hold(session, job_ids, worker=self._worker, lease_s=self._settings.lease_s)

    def _give_back(self, held: Sequence[int]) -> None:
        with transaction(self._sessions) as session:
            given = holds.give_back(session, held, worker=self._worker)
        telemetry.JOBS_RETURNED.labels("no_turn").inc(given)
        log.info("chunk_given_back", jobs=given)

    def _through(self, stage: str, move: Callable[[], T]) -> T:
        until = time.monotonic() + self._settings.lease_s
        return through_outages(stage, move, left_s=lambda: until - time.monotonic(), pause=self._pause)
