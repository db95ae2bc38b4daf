"""The plan loses nothing, sends nothing twice, keeps to its budgets and to fair shares."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.planner import Chunk, ChunkLimits, ReadyJob, Source, plan_chunks, share

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = ChunkLimits(jobs=4, visual_tokens=100)


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
        )
        for number in range(count)
    ]


@st.composite
def sources(draw: st.DrawFn) -> list[Source]:
    rows = draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 50)), max_size=12)
    )
    return [
        Source(tenant, f"batch_{number}", NOON + timedelta(hours=hours), ready)
        for number, (tenant, hours, ready) in enumerate(rows)
    ]


@given(ready_jobs())
def test_every_job_is_in_exactly_one_chunk_of_its_model(jobs: list[ReadyJob]) -> None:
    chunks = plan_chunks(jobs, LIMITS)
    sent = sorted((job_id, chunk.model) for chunk in chunks for job_id in chunk.job_ids)
    assert sent == sorted((job.id, job.model) for job in jobs)


@given(ready_jobs())
def test_no_chunk_of_several_jobs_is_over_either_limit(jobs: list[ReadyJob]) -> None:
    by_id = {job.id: job for job in jobs}
    for chunk in plan_chunks(jobs, LIMITS):
        images = {image: n for job_id in chunk.job_ids for image, n in by_id[job_id].images.items()}
        assert len(chunk.job_ids) == 1 or len(chunk.job_ids) <= LIMITS.jobs
        assert len(chunk.job_ids) == 1 or sum(images.values()) <= LIMITS.visual_tokens


@given(ready_jobs())
def test_a_job_that_was_on_board_at_a_death_travels_alone(jobs: list[ReadyJob]) -> None:
    alone = {job.id for job in jobs if job.alone}
    for chunk in plan_chunks(jobs, LIMITS):
        assert len(chunk.job_ids) == 1 or not alone & set(chunk.job_ids)


def test_a_shared_image_counts_once() -> None:
    jobs = [ReadyJob(number, "m", {7: 90}) for number in range(4)]
    assert plan_chunks(jobs, LIMITS) == [Chunk("m", (0, 1, 2, 3))]


def test_a_job_over_the_budget_still_travels_by_itself() -> None:
    jobs = [ReadyJob(1, "m", {1: 500}), ReadyJob(2, "m", {2: 10})]
    assert plan_chunks(jobs, LIMITS) == [Chunk("m", (1,)), Chunk("m", (2,))]


@given(st.integers(0, 200), sources())
def test_the_shares_use_the_room_and_never_more(capacity: int, given_sources: list[Source]) -> None:
    taken = share(capacity, given_sources)
    demand = sum(source.ready for source in given_sources)
    assert sum(take for _, take in taken) == min(capacity, demand)
    assert all(0 < take <= source.ready for source, take in taken)


@given(st.integers(0, 200), sources())
def test_no_tenant_gets_less_than_its_fair_share_while_it_has_jobs(
    capacity: int, given_sources: list[Source]
) -> None:
    tenants = {source.tenant_id for source in given_sources if source.ready}
    granted = dict.fromkeys(tenants, 0)
    for source, take in share(capacity, given_sources):
        granted[source.tenant_id] += take
    for tenant in tenants:
        demand = sum(source.ready for source in given_sources if source.tenant_id == tenant)
        assert granted[tenant] >= min(demand, capacity // len(tenants))


def test_within_a_tenant_the_earliest_deadline_is_served_first() -> None:
    late = Source("a", "late", NOON + timedelta(hours=2), 10)
    soon = Source("a", "soon", NOON, 10)
    assert share(15, [late, soon]) == [(soon, 10), (late, 5)]


def test_a_small_tenant_is_not_pushed_out_by_a_large_one() -> None:
    large = Source("large", "a", NOON, 1_000_000)
    small = Source("small", "b", NOON + timedelta(days=1), 30)
    assert {source.tenant_id: take for source, take in share(100, [large, small])} == {
        "large": 70,
        "small": 30,
    }
