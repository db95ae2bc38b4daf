"""What the page of operations shows: of all tenants numbers only, and the viewer's own jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.db import Sessions, transaction
from app.store import images, operations, plans
from app.store.operations import LaneCount, WorkerRow

# Processes without which work stands still, in the order of a job's way.
NEEDED = ("dispatcher", "fetcher", "worker")


@dataclass(frozen=True)
class Operations:
    lanes: Sequence[LaneCount]
    own: Sequence[LaneCount]
    workers: Sequence[WorkerRow]
    up: Mapping[str, bool]  # by NEEDED
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

    def is_live(self, worker: WorkerRow) -> bool:
        return worker.silent_s < self.live_s


class OperationsBoard:
    def __init__(self, *, sessions: Sessions, live_s: float) -> None:
        """A worker that has said nothing for `live_s` seconds counts as gone."""
        self._sessions = sessions
        self._live_s = live_s

    def read(self, tenant_id: str) -> Operations:
        with transaction(self._sessions) as session:
            processes = operations.count_processes(session)
            workers = operations.list_workers(session)
            return Operations(
                lanes=operations.count_lanes(session),
                own=operations.count_lanes(session, tenant_id),
                workers=workers,
                up={kind: processes.get(kind, 0) > 0 for kind in NEEDED},
                batches=plans.count_batches(session),
                images=images.count_open(session),
                live_s=self._live_s,
            )
