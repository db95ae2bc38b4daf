"""What to send next: fair shares between tenants, then deadlines, then chunks of one image's jobs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.states import Priority


@dataclass(frozen=True)
class Source:
    """Where ready jobs of a model come from: a batch, or a tenant's direct jobs (`batch_id` None)."""

    tenant_id: str
    batch_id: str | None
    model: str
    deadline: datetime
    ready: int


@dataclass(frozen=True)
class ReadyJob:
    """A job that could be sent. `images` maps the ids of its images to their visual tokens."""

    id: int
    model: str
    images: Mapping[int, int]
    alone: bool = False
    priority: Priority = Priority.STANDARD


@dataclass(frozen=True)
class Chunk:
    """What one message carries: jobs of one model and one class."""

    model: str
    job_ids: tuple[int, ...]
    priority: Priority = Priority.STANDARD


@dataclass(frozen=True)
class ChunkLimits:
    jobs: int
    visual_tokens: int


def share(room: Mapping[str, int], sources: Sequence[Source]) -> list[tuple[Source, int]]:
    """How many jobs to take from each source, when each model has its own room on the broker.

    A model that is busy so keeps none of another's jobs waiting. Within a model tenants get equal shares, and
    what one leaves goes to the others; within a tenant the earliest deadline is served first.
    """
    return [
        taken
        for model, capacity in room.items()
        for taken in _share_model(capacity, [source for source in sources if source.model == model])
    ]


def _share_model(capacity: int, sources: Sequence[Source]) -> list[tuple[Source, int]]:
    demand: dict[str, int] = {}
    for source in sources:
        demand[source.tenant_id] = demand.get(source.tenant_id, 0) + source.ready
    grants = _fill(capacity, demand)
    taken: list[tuple[Source, int]] = []
    for source in sorted(sources, key=lambda source: (source.deadline, source.batch_id or "")):
        take = min(source.ready, grants[source.tenant_id])
        grants[source.tenant_id] -= take
        if take:
            taken.append((source, take))
    return taken


def _fill(capacity: int, demand: Mapping[str, int]) -> dict[str, int]:
    """Pour capacity evenly; whoever is full leaves the rest to the others."""
    grants = dict.fromkeys(demand, 0)
    hungry = sorted(demand, key=lambda tenant: (demand[tenant], tenant))
    for served, tenant in enumerate(hungry):
        fair = capacity // (len(hungry) - served)
        grants[tenant] = min(demand[tenant], fair)
        capacity -= grants[tenant]
    return grants


def plan_chunks(jobs: Sequence[ReadyJob], limits: ChunkLimits) -> list[Chunk]:
    """Cut jobs, in the order given, into chunks of one model and class within both limits.

    An image shared by jobs of a chunk counts once. A job that alone is over the budget still travels, by
    itself; so does one that was on board when a process died, and one whose client waits on the line: a
    chunk's answers are told when the last of them is there.
    """
    chunks: list[Chunk] = []
    open_jobs: dict[tuple[str, Priority], list[int]] = {}
    open_images: dict[tuple[str, Priority], dict[int, int]] = {}
    for job in jobs:
        if job.alone or job.priority is Priority.INTERACTIVE:
            chunks.append(Chunk(job.model, (job.id,), job.priority))
            continue
        lane = (job.model, job.priority)
        aboard = open_jobs.setdefault(lane, [])
        images = open_images.setdefault(lane, {})
        if aboard and _over(len(aboard) + 1, {**images, **job.images}, limits):
            chunks.append(Chunk(job.model, tuple(aboard), job.priority))
            aboard.clear()
            images.clear()
        aboard.append(job.id)
        images.update(job.images)
    rest = (
        Chunk(model, tuple(aboard), priority) for (model, priority), aboard in open_jobs.items() if aboard
    )
    chunks.extend(rest)
    return chunks


def _over(jobs: int, images: Mapping[int, int], limits: ChunkLimits) -> bool:
    return jobs > limits.jobs or sum(images.values()) > limits.visual_tokens
