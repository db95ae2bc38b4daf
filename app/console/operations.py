"""What the page of operations shows: of all tenants numbers only, and the viewer's own jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.db import Sessions, transaction
from app.store import images, operations, plans
from app.store.operations import LaneCount, Unsent, WorkerRow

# Up to so many ready jobs are counted for a page; of more it says that there are at least so many.
MOST_READY = 10_000


@dataclass(frozen=True)
class Operations:
    lanes: Sequence[LaneCount]
    own: Sequence[LaneCount]
    unsent: Unsent
    own_unsent: Unsent
    workers: Sequence[WorkerRow]
    silence: Mapping[str, float]  # by kind of process: seconds since the last word of one to the database
    batches: Mapping[str, int]  # open ones by status
    images: Mapping[str, int]  # not stored yet, by state
    live_s: float

    @property
    def queued(self) -> int:
        return sum(lane.queued for lane in self.lanes)

    @property
    def running(self) -> int:
        return sum(lane.running for lane in self.lanes)

    @property
    def oldest_sent_at(self) -> datetime | None:
        return min((lane.oldest_sent_at for lane in self.lanes if lane.oldest_sent_at), default=None)

    @property
    def up(self) -> Mapping[str, bool]:
        """Processes without which work stands still, in the order of a job's way; workers by heartbeat."""
        return {
            "dispatcher": self.silence.get("dispatcher", self.live_s) < self.live_s,
            "fetcher": self.silence.get("fetcher", self.live_s) < self.live_s,
            "worker": any(self.is_live(one) for one in self.workers),
        }

    def is_live(self, worker: WorkerRow) -> bool:
        return worker.silent_s < self.live_s


class OperationsBoard:
    def __init__(self, *, sessions: Sessions, live_s: float) -> None:
        """A process that has said nothing for `live_s` seconds counts as gone."""
        self._sessions = sessions
        self._live_s = live_s

    def read(self, tenant_id: str) -> Operations:
        with transaction(self._sessions) as session:
            return Operations(
                lanes=operations.count_lanes(session),
                own=operations.count_lanes(session, tenant_id),
                unsent=operations.count_unsent(session, cap=MOST_READY),
                own_unsent=operations.count_unsent(session, tenant_id, cap=MOST_READY),
                workers=operations.list_workers(session),
                silence=operations.read_silence(session),
                batches=plans.count_batches(session),
                images=images.count_open(session),
                live_s=self._live_s,
            )
