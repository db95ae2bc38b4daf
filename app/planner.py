"""What to send next: class by class, tenants' fair shares, deadlines, chunks of one image's jobs. Pure."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, TypeVar

from app.states import Priority

T = TypeVar("T")
ORDER = {priority: place for place, priority in enumerate(Priority)}


class Lane(NamedTuple):
    """What has a queue of its own: the jobs of one model and class."""

    model: str
    priority: Priority = Priority.STANDARD


@dataclass(frozen=True)
class OpenBatches:
    """A tenant's batches of a class, the earliest deadline first. Deadlines are Unix times."""

    tenant_id: str
    priority: Priority
    batch_ids: Sequence[str]
    deadlines: Sequence[float]


@dataclass(frozen=True)
class DirectJobs:
    """That a tenant has jobs of its own in a lane, the first of them due at `deadline`."""

    tenant_id: str
    lane: Lane
    deadline: float


@dataclass(frozen=True)
class Demand:
    """What one tenant wants of a lane: `ready` jobs, and where `more` is set, maybe others."""

    tenant_id: str
    lane: Lane
    deadline: float  # the earliest
    batch_ids: Sequence[str | None]  # earliest deadline first; None stands for direct jobs
    weight: float = 1.0
    ready: int = 0
    more: bool = True


# Jobs on the broker, by lane and tenant.
Queued = Mapping[Lane, Mapping[str, int]]


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
    traces: Mapping[int, str] = field(default_factory=dict, compare=False)  # of those that are followed


@dataclass(frozen=True)
class ChunkLimits:
    jobs: int
    visual_tokens: int


def open_lanes(models: Iterable[str], window: int, queued: Queued) -> set[Lane]:
    """The lanes in which there may be room for more."""
    used = _used(queued)
    lanes = (Lane(model, priority) for model in models for priority in Priority)
    return {lane for lane in lanes if _room(lane, window, used) > 0}


def line_up(
    lanes: Collection[Lane],
    batches: Iterable[OpenBatches],
    direct: Iterable[DirectJobs],
    weights: Mapping[str, float],
) -> list[Demand]:
    """What each tenant wants of these lanes, none of it counted yet. A tenant has weight 1 unless told."""
    by_class = {priority: [lane for lane in lanes if lane.priority is priority] for priority in Priority}
    found: dict[Lane, dict[str, Demand]] = {lane: {} for lane in lanes}
    deadlines: dict[tuple[str, Priority], Sequence[float]] = {}
    for one in batches:
        deadlines[one.tenant_id, one.priority] = one.deadlines
        weight = weights.get(one.tenant_id, 1.0)
        for lane in by_class[one.priority]:
            demand = Demand(one.tenant_id, lane, one.deadlines[0], one.batch_ids, weight)
            found[lane][one.tenant_id] = demand
    for own in direct:
        if own.lane not in found:
            continue
        others = found[own.lane].get(own.tenant_id)
        batch_ids = others.batch_ids if others else ()
        place = bisect_left(deadlines.get((own.tenant_id, own.lane.priority), ()), own.deadline)
        found[own.lane][own.tenant_id] = Demand(
            own.tenant_id,
            own.lane,
            min(own.deadline, others.deadline) if others else own.deadline,
            [*batch_ids[:place], None, *batch_ids[place:]],
            weights.get(own.tenant_id, 1.0),
        )
    return [demand for tenants in found.values() for demand in tenants.values()]


def share(window: int, queued: Queued, demands: Sequence[Demand]) -> list[tuple[Demand, int]]:
    """How many jobs each demand is granted, if any; one that is not counted yet is taken for endless.

    A model that is busy keeps none of another's jobs waiting. A model's window is for its standard jobs,
    whatever of the background is queued; the background gets what they leave of it. Interactive jobs have as
    much again for themselves.
    """
    used = _used(queued)
    wanted: defaultdict[Lane, list[Demand]] = defaultdict(list)
    for demand in demands:
        wanted[demand.lane].append(demand)
    granted: list[tuple[Demand, int]] = []
    for lane in sorted(wanted, key=lambda lane: (ORDER[lane.priority], lane.model)):
        shares = _fill(_room(lane, window, used), wanted[lane], queued.get(lane, {}))
        used[lane] += sum(jobs for _, jobs in shares)
        granted.extend(shares)
    return granted


def _used(queued: Queued) -> Counter[Lane]:
    return Counter({lane: sum(tenants.values()) for lane, tenants in queued.items()})


def _room(lane: Lane, window: int, used: Mapping[Lane, int]) -> int:
    shared = Lane(lane.model) if lane.priority is Priority.BACKGROUND else None
    return window - used.get(lane, 0) - (used.get(shared, 0) if shared else 0)


def _fill(room: int, demands: Sequence[Demand], queued: Mapping[str, int]) -> list[tuple[Demand, int]]:
    """Give job after job to whoever then has the least for its weight, what it has queued counted in.

    So shares are those of the whole window, also when one tenant came late. Between equals the earlier
    deadline decides.
    """
    waiting = [
        ((queued.get(demand.tenant_id, 0) + 1) / demand.weight, demand.deadline, place)
        for place, demand in enumerate(demands)
        if demand.more or demand.ready
    ]
    heapify(waiting)
    grants = [0] * len(demands)
    while room > 0 and waiting:
        level, deadline, place = waiting[0]
        demand = demands[place]
        grants[place] += 1
        room -= 1
        if demand.more or grants[place] < demand.ready:
            heapreplace(waiting, (level + 1 / demand.weight, deadline, place))
        else:
            heappop(waiting)
    return [(demand, jobs) for demand, jobs in zip(demands, grants, strict=True) if jobs]


def interleave(piles: Sequence[tuple[float, Sequence[T]]], block: int) -> list[T]:
    """Piles with their weights as one row, block by block in turn, so that none goes first as a whole."""
    blocks = [
        (start / weight, place, pile[start : start + block])
        for place, (weight, pile) in enumerate(piles)
        for start in range(0, len(pile), block)
    ]
    return [item for _, _, part in sorted(blocks, key=lambda one: one[:2]) for item in part]


def plan_chunks(jobs: Sequence[ReadyJob], limits: ChunkLimits) -> list[Chunk]:
    """Cut jobs, in the order given, into chunks of one model and class within both limits.

    An image shared by jobs of a chunk counts once. A job that alone is over the budget still travels, by
    itself; so does one that was on board when a process died, and one whose client waits on the line: a
    chunk's answers are told when the last of them is there.
    """
    chunks: list[Chunk] = []
    open_jobs: dict[Lane, list[int]] = {}
    open_images: dict[Lane, dict[int, int]] = {}
    for job in jobs:
        if job.alone or job.priority is Priority.INTERACTIVE:
            chunks.append(Chunk(job.model, (job.id,), job.priority))
            continue
        lane = Lane(job.model, job.priority)
        aboard = open_jobs.setdefault(lane, [])
        images = open_images.setdefault(lane, {})
        if aboard and _over(len(aboard) + 1, {**images, **job.images}, limits):
            chunks.append(Chunk(lane.model, tuple(aboard), lane.priority))
            aboard.clear()
            images.clear()
        aboard.append(job.id)
        images.update(job.images)
    chunks.extend(
        Chunk(lane.model, tuple(aboard), lane.priority) for lane, aboard in open_jobs.items() if aboard
    )
    return chunks


def _over(jobs: int, images: Mapping[int, int], limits: ChunkLimits) -> bool:
    return jobs > limits.jobs or sum(images.values()) > limits.visual_tokens
