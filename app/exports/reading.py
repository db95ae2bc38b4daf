"""Reads the jobs of a batch, and of its retries, in the order of their lines, with flat memory."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from app.batches import missing
from app.config import MIB
from app.db import Sessions, transaction
from app.exports.jobs import ExportedJob, newest
from app.parts import in_parts
from app.states import ENDED_JOB, JobState
from app.store import exports as store
from app.store.exports import Place
from app.store.progress import read_ended, read_sizes

PAGE_JOBS = 1_000
# Of answers in memory at once: those with log probabilities can be a megabyte each.
PART_BYTES = 8 * MIB


@dataclass(frozen=True)
class JobReader:
    sessions: Sessions
    batch_id: str
    retries: Sequence[str]  # oldest first

    def jobs(self, states: Collection[JobState]) -> Iterator[ExportedJob]:
        """Those that are in one of these states. `NotFound` where the batch is deleted meanwhile."""
        after = 0
        while page := self._page(after, states):
            places, sizes, after = page
            for part in in_parts(places, sizes, most=PART_BYTES):
                yield from self._read(part)
        with transaction(self.sessions) as session:
            if not store.is_there(session, self.batch_id):
                raise missing(self.batch_id)

    def _page(
        self, after: int, states: Collection[JobState]
    ) -> tuple[Sequence[Place], dict[int, int], int] | None:
        """Places, the sizes of their answers, and the line up to which they are; None behind the last."""
        # A retry may have made anything else of a job.
        looked_for = frozenset(JobState) if self.retries else states
        with transaction(self.sessions) as session:
            places = store.read_places(
                session, self.batch_id, after=after, limit=PAGE_JOBS, states=sorted(looked_for)
            )
            if not places:
                return None
            last = places[-1].line
            if self.retries:
                places = newest(
                    places, store.read_places_again(session, self.retries, after=after, last=last)
                )
            chosen = [place for place in places if place.state in states]
            return chosen, read_sizes(session, [place.job_id for place in chosen]), last

    def _read(self, places: Sequence[Place]) -> list[ExportedJob]:
        with transaction(self.sessions) as session:
            ended = read_ended(session, [place.job_id for place in places if place.state in ENDED_JOB])
        return [
            ExportedJob(place.line, place.custom_id, place.state, ended.get(place.job_id)) for place in places
        ]
