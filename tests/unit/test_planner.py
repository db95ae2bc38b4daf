"""The plan loses nothing, sends nothing twice, keeps to its budgets, its classes and to fair shares."""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from app.planner import (
    Chunk,
    ChunkLimits,
    Demand,
    DirectJobs,
    Lane,
    OpenBatches,
    ReadyJob,
    interleave,
    line_up,
    open_lanes,
    plan_chunks,
    share,
)
from app.states import Priority

NOON = 1_800_000_000.0
LIMITS = ChunkLimits(jobs=4, visual_tokens=100)
SMALL = Lane("small")
LEISURE = Lane("small", Priority.BACKGROUND)
CHAT = Lane("small", Priority.INTERACTIVE)
LARGE = Lane("large")
LANES = st.sampled_from([SMALL, LEISURE, CHAT, LARGE])
TENANTS = st.sampled_from("abcd")


@st.composite
def ready_jobs(draw: st.DrawFn) -> list[ReadyJob]:
    tokens = draw(st.dictionaries(st.integers(1, 8), st.integers(0, 150), min_size=1))
    count = draw(st.integers(0, 40))
    pick = st.lists(st.sampled_from(sorted(tokens)), max_size=3, unique=True)
    return [
        ReadyJob(
            id=number,
            model=draw(st.sampled_from(["small", "large"])),
            images={image: tokens[image] for image in draw(pick)},
            alone=draw(st.booleans()),
            priority=draw(st.sampled_from(Priority)),
        )
        for number in range(count)
    ]


@given(ready_jobs())
def test_every_job_is_in_exactly_one_chunk_of_its_model_and_class(jobs: list[ReadyJob]) -> None:
    chunks = plan_chunks(jobs, LIMITS)
    sent = sorted((job_id, chunk.model, chunk.priority) for chunk in chunks for job_id in chunk.job_ids)
    assert sent == sorted((job.id, job.model, job.priority) for job in jobs)


@given(ready_jobs())
def test_no_chunk_of_several_jobs_is_over_either_limit(jobs: list[ReadyJob]) -> None:
    by_id = {job.id: job for job in jobs}
    for chunk in plan_chunks(jobs, LIMITS):
        images = {image: n for job_id in chunk.job_ids for image, n in by_id[job_id].images.items()}
        assert len(chunk.job_ids) == 1 or len(chunk.job_ids) <= LIMITS.jobs
        assert len(chunk.job_ids) == 1 or sum(images.values()) <= LIMITS.visual_tokens


@given(ready_jobs())
def test_jobs_after_a_death_and_interactive_ones_travel_alone(jobs: list[ReadyJob]) -> None:
    alone = {job.id for job in jobs if job.alone or job.priority is Priority.INTERACTIVE}
    for chunk in plan_chunks(jobs, LIMITS):
        assert len(chunk.job_ids) == 1 or not alone & set(chunk.job_ids)


def test_a_shared_image_counts_once() -> None:
    jobs = [ReadyJob(number, "m", {7: 90}) for number in range(4)]
    assert plan_chunks(jobs, LIMITS) == [Chunk("m", (0, 1, 2, 3))]


def test_a_job_over_the_budget_still_travels_by_itself() -> None:
    jobs = [ReadyJob(1, "m", {1: 500}), ReadyJob(2, "m", {2: 10})]
    assert plan_chunks(jobs, LIMITS) == [Chunk("m", (1,)), Chunk("m", (2,))]


def demand(tenant: str, ready: int, lane: Lane = SMALL, *, weight: float = 1.0, hours: int = 0) -> Demand:
    return Demand(tenant, lane, NOON + 3600 * hours, [f"batch_{tenant}"], weight, ready, more=False)


@dataclass(frozen=True)
class Situation:
    """A window, what is on the broker already, and what is wanted."""

    window: int
    queued: dict[Lane, dict[str, int]]
    demands: list[Demand]

    def granted(self) -> Counter[tuple[Lane, str]]:
        shares = share(self.window, self.queued, self.demands)
        return Counter({(one.lane, one.tenant_id): jobs for one, jobs in shares})

    def wanted(self, lane: Lane) -> int:
        return sum(one.ready for one in self.demands if one.lane == lane)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    weights = {tenant: draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])) for tenant in "abcd"}
    ready = draw(st.dictionaries(st.tuples(LANES, TENANTS), st.integers(0, 60), max_size=9))
    return Situation(
        window=draw(st.integers(1, 80)),
        queued=draw(
            st.dictionaries(LANES, st.dictionaries(TENANTS, st.integers(1, 30), min_size=1), max_size=4)
        ),
        demands=[
            demand(tenant, jobs, lane, weight=weights[tenant], hours=draw(st.integers(0, 3)))
            for (lane, tenant), jobs in ready.items()
        ],
    )


def room(now: Situation, lane: Lane) -> int:
    """What the window leaves to a lane, before anything is granted."""
    lanes = {lane, SMALL} if lane == LEISURE else {lane}
    return max(0, now.window - sum(sum(now.queued.get(one, {}).values()) for one in lanes))


@given(situations())
def test_no_one_is_granted_more_than_is_ready(now: Situation) -> None:
    ready = {(one.lane, one.tenant_id): one.ready for one in now.demands}
    assert all(0 < jobs <= ready[where] for where, jobs in now.granted().items())


@given(situations())
def test_each_lane_uses_its_room_and_never_more(now: Situation) -> None:
    """The background has what standard jobs leave; interactive ones and other models take nothing from it."""
    granted = Counter[Lane]()
    for (lane, _), jobs in now.granted().items():
        granted[lane] += jobs
    for lane in (SMALL, CHAT, LARGE):
        assert granted[lane] == min(room(now, lane), now.wanted(lane))
    left = max(0, room(now, LEISURE) - granted[SMALL])
    assert granted[LEISURE] == min(left, now.wanted(LEISURE))


@given(situations())
def test_nobody_is_given_a_job_while_another_has_less_for_its_weight(now: Situation) -> None:
    granted = now.granted()

    def level(one: Demand, more: int = 0) -> float:
        queued = now.queued.get(one.lane, {}).get(one.tenant_id, 0)
        return (queued + granted[one.lane, one.tenant_id] + more) / one.weight

    for given_one in now.demands:
        for other in now.demands:
            if given_one.lane == other.lane and granted[given_one.lane, given_one.tenant_id]:
                is_served = granted[other.lane, other.tenant_id] == other.ready
                assert is_served or level(given_one) <= level(other, more=1) + 1e-9


@given(situations())
def test_the_lanes_with_room_are_those_that_are_looked_into(now: Situation) -> None:
    lanes = open_lanes(["small", "large"], now.window, now.queued)
    assert {lane for lane, _ in now.granted()} <= lanes
    for lane in (SMALL, LEISURE, CHAT, LARGE):
        assert (lane in lanes) == (room(now, lane) > 0)


def test_who_filled_the_window_first_does_not_keep_its_lead() -> None:
    early, late = demand("early", 1_000), demand("late", 1_000)
    assert share(100, {SMALL: {"early": 60}}, [early, late]) == [(late, 40)]
    assert share(100, {SMALL: {"early": 40, "late": 40}}, [early, late]) == [(early, 10), (late, 10)]


def test_a_tenant_of_twice_the_weight_has_twice_the_share() -> None:
    shares = share(90, {}, [demand("a", 1_000), demand("b", 1_000, weight=2)])
    assert [jobs for _, jobs in shares] == [30, 60]


def test_a_small_tenant_is_not_pushed_out_by_a_large_one() -> None:
    large, small = demand("large", 1_000_000), demand("small", 30, hours=24)
    assert share(100, {}, [large, small]) == [(large, 70), (small, 30)]


def test_between_equal_tenants_the_earlier_deadline_decides() -> None:
    shares = share(1, {}, [demand("a", 5, hours=2), demand("b", 5, hours=1), demand("c", 5, hours=3)])
    assert [one.tenant_id for one, _ in shares] == ["b"]


def test_a_model_that_has_no_room_keeps_nothing_of_anothers_back() -> None:
    other = demand("a", 10)
    assert share(20, {LARGE: {"a": 20}}, [demand("a", 1_000, LARGE), other]) == [(other, 10)]


def test_background_on_the_broker_takes_no_room_from_standard_jobs() -> None:
    urgent = demand("a", 50)
    assert share(20, {LEISURE: {"b": 20}}, [urgent, demand("b", 50, LEISURE)]) == [(urgent, 20)]


def test_who_is_not_counted_yet_is_taken_for_endless() -> None:
    unknown = replace(demand("a", 0), more=True)
    assert share(20, {}, [unknown, demand("b", 5)])[0] == (unknown, 15)


@st.composite
def open_batches(draw: st.DrawFn) -> list[OpenBatches]:
    """At most one for each tenant and class."""
    found = draw(
        st.dictionaries(st.tuples(TENANTS, st.sampled_from(Priority)), st.lists(st.floats(0, 9), min_size=1))
    )
    return [
        OpenBatches(tenant, priority, [f"{tenant}.{priority}.{n}" for n in range(len(times))], sorted(times))
        for (tenant, priority), times in found.items()
    ]


DIRECT = st.lists(
    st.builds(DirectJobs, tenant_id=TENANTS, lane=LANES, deadline=st.floats(0, 9)),
    unique_by=lambda one: (one.tenant_id, one.lane),
)


@given(open_batches(), DIRECT, st.sets(LANES))
def test_everything_that_a_lane_may_be_sent_from_stands_in_it_once_by_deadline(
    batches: list[OpenBatches], direct: list[DirectJobs], lanes: set[Lane]
) -> None:
    times: dict[tuple[str, Lane, str | None], float] = {
        (one.tenant_id, lane, name): time
        for one in batches
        for lane in lanes
        if lane.priority is one.priority
        for name, time in zip(one.batch_ids, one.deadlines, strict=True)
    }
    times |= {(one.tenant_id, one.lane, None): one.deadline for one in direct if one.lane in lanes}
    demands = line_up(lanes, batches, direct, {"b": 2.0})
    placed = [(one.tenant_id, one.lane, name) for one in demands for name in one.batch_ids]
    assert sorted(map(str, placed)) == sorted(map(str, times))
    for one in demands:
        stands = [times[one.tenant_id, one.lane, name] for name in one.batch_ids]
        assert (stands, stands[0]) == (sorted(stands), one.deadline)
        assert one.weight == (2.0 if one.tenant_id == "b" else 1.0)


def test_piles_go_block_by_block_in_turn() -> None:
    assert interleave([(1, "aaaaaa"), (2, "bbbbbbbb"), (1, "c")], 2) == list("aabbcbbaabbbbaa")


@given(st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.lists(st.integers())), max_size=5))
def test_interleaving_loses_nothing_and_keeps_each_order(piles: list[tuple[float, list[int]]]) -> None:
    marked = [
        (weight, [(place, number) for number in range(len(pile))])
        for place, (weight, pile) in enumerate(piles)
    ]
    row = interleave(marked, 3)
    for place, (_, pile) in enumerate(marked):
        assert [item for item in row if item[0] == place] == pile
    assert len(row) == sum(len(pile) for _, pile in piles)
