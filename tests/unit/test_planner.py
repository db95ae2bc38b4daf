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
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from(["small", "large"]),
                st.integers(0, 9),
                st.integers(0, 50),
            ),
            max_size=12,
        )
    )
    return [
        Source(tenant, f"batch_{number}", model, NOON + timedelta(hours=hours), ready)
        for number, (tenant, model, hours, ready) in enumerate(rows)
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


rooms = st.fixed_dictionaries({"small": st.integers(0, 200), "large": st.integers(0, 200)})


@given(rooms, sources())
def test_the_shares_use_each_models_room_and_never_more(
    room: dict[str, int], given_sources: list[Source]
) -> None:
    taken = share(room, given_sources)
    for model, capacity in room.items():
        demand = sum(source.ready for source in given_sources if source.model == model)
        assert sum(take for source, take in taken if source.model == model) == min(capacity, demand)
    assert all(0 < take <= source.ready for source, take in taken)


@given(rooms, sources())
def test_no_tenant_gets_less_than_its_fair_share_of_a_model_while_it_has_jobs(
    room: dict[str, int], given_sources: list[Source]
) -> None:
    taken = share(room, given_sources)
    for model, capacity in room.items():
        of_model = [source for source in given_sources if source.model == model and source.ready]
        tenants = {source.tenant_id for source in of_model}
        for tenant in tenants:
            demand = sum(source.ready for source in of_model if source.tenant_id == tenant)
            granted = sum(
                take for source, take in taken if (source.tenant_id, source.model) == (tenant, model)
            )
            assert granted >= min(demand, capacity // len(tenants))


def test_a_model_that_has_no_room_keeps_nothing_of_anothers_back() -> None:
    busy = Source("a", "first", "large", NOON, 1_000)
    other = Source("a", "second", "small", NOON + timedelta(days=1), 10)
    assert share({"small": 20}, [busy, other]) == [(other, 10)]


def test_within_a_tenant_the_earliest_deadline_is_served_first() -> None:
    late = Source("a", "late", "small", NOON + timedelta(hours=2), 10)
    soon = Source("a", "soon", "small", NOON, 10)
    assert share({"small": 15}, [late, soon]) == [(soon, 10), (late, 5)]


def test_a_small_tenant_is_not_pushed_out_by_a_large_one() -> None:
    large = Source("large", "a", "small", NOON, 1_000_000)
    small = Source("small", "b", "small", NOON + timedelta(days=1), 30)
    assert {source.tenant_id: take for source, take in share({"small": 100}, [large, small])} == {
        "large": 70,
        "small": 30,
    }
