"""Replicas as KEDA and the HPA would have them: never out of bounds, never too fast, never blindly down."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.scaling import SYNC_S, Autoscaler, Fallback, Policy, Rules, Scaling, Trigger, wanted, wanted_for

QUEUE = Trigger("queue", target=4)
BACKLOG = Trigger("backlog", target=1000, activation=10)
BOTH = Scaling((QUEUE, BACKLOG), maximum=64, polling_s=15, cooldown_s=600)
AT_ONCE = Rules((Policy("Pods", 1000, 15),), stabilization_s=0)
NEVER = Rules((), stabilization_s=0, select="Disabled")

policies = st.builds(
    Policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.sampled_from([15.0, 60.0, 300.0])
)
rules = st.builds(
    Rules,
    st.lists(policies, min_size=1, max_size=3).map(tuple),
    st.sampled_from([0.0, 60.0, 300.0]),
    st.sampled_from(["Max", "Min", "Disabled"]),
)
bounds = st.tuples(st.integers(0, 5), st.integers(0, 60)).map(lambda two: (two[0], max(1, two[0] + two[1])))
readings = st.one_of(st.none(), st.floats(0, 1e6))
courses = st.lists(st.fixed_dictionaries({"queue": readings, "backlog": readings}), min_size=1, max_size=20)


def follow(
    scaler: Autoscaler, course: list[dict[str, float | None]], replicas: int = 0, now_s: float = 0.0
) -> list[int]:
    """The replicas after each poll and sync, one of each every SYNC_S."""
    found: list[int] = []
    for read in course:
        replicas = scaler.poll(now_s, read, replicas)
        found.append(replicas := scaler.sync(now_s, read, replicas))
        now_s += SYNC_S
    return found


def steady(seconds: float, **read: float | None) -> list[dict[str, float | None]]:
    return [dict(read) for _ in range(math.ceil(seconds / SYNC_S))]


@given(st.integers(0, 10**9), st.floats(0.1, 1e6), st.integers(0, 100))
def test_the_wanted_replicas_serve_the_value_up_to_the_tolerance(
    value: float, target: float, now: int
) -> None:
    found = wanted_for(value, target, now, up=0.1, down=0.1)
    assert found * target * 1.1 >= value * (1 - 1e-9)
    assert found == now or (found - 1) * target < value


@given(readings, readings, st.integers(1, 64))
def test_the_trigger_that_asks_for_most_decides(queue: float | None, backlog: float | None, now: int) -> None:
    alone = [
        wanted(Scaling((trigger,)), {trigger.name: value}, now)
        for trigger, value in [(QUEUE, queue), (BACKLOG, backlog)]
    ]
    known = [one for one in alone if one is not None]
    found = wanted(BOTH, {"queue": queue, "backlog": backlog}, now)
    assert found == (max(known) if known else None) or (found is None and max(known) < now)


@given(bounds, rules, rules, courses)
def test_replicas_stay_within_their_bounds(
    bounds: tuple[int, int], up: Rules, down: Rules, course: list[dict[str, float | None]]
) -> None:
    least, most = bounds
    scaling = Scaling(BOTH.triggers, minimum=least, maximum=most, up=up, down=down)
    assert all(least <= replicas <= most for replicas in follow(Autoscaler(scaling), course, least))


@given(st.integers(1, 8), courses)
def test_within_a_period_replicas_grow_by_no_more_than_the_policy_allows(
    pods: int, course: list[dict[str, float | None]]
) -> None:
    up = Rules((Policy("Pods", pods, 60),), stabilization_s=0)
    # Removals within the period are allowed for on top, as in the original.
    found = follow(Autoscaler(Scaling(BOTH.triggers, minimum=1, up=up, down=NEVER)), course, 1)
    within = round(60 / SYNC_S)
    for start in range(len(found)):
        spell = [1, *found][start : start + within + 1]
        assert max(spell) - spell[0] <= pods


@given(st.integers(2, 64), st.lists(st.floats(0, 10), min_size=1, max_size=40))
def test_fewer_are_wanted_all_through_the_stabilization_before_any_goes(now: int, queue: list[float]) -> None:
    down = Rules((Policy("Percent", 100, 15),), stabilization_s=1e9)
    scaler = Autoscaler(Scaling((QUEUE,), minimum=1, down=down, up=AT_ONCE))
    assert scaler.sync(0, {"queue": 4.0 * now}, now) == now
    for step, value in enumerate(queue, start=1):
        assert scaler.sync(step * SYNC_S, {"queue": value}, now) >= now


@given(st.integers(1, 64), readings)
def test_nothing_is_scaled_in_while_a_trigger_cannot_be_read(now: int, queue: float | None) -> None:
    scaling = Scaling(BOTH.triggers, up=AT_ONCE, down=Rules((Policy("Percent", 100, 15),), 0))
    course = steady(3600, queue=queue, backlog=None)
    assert min(follow(Autoscaler(scaling), course, now)) >= now


def test_the_first_job_starts_the_first_replica_at_the_next_poll() -> None:
    assert Autoscaler(BOTH).poll(0, {"queue": 1, "backlog": 0}, 0) == 1
    assert Autoscaler(BOTH).poll(0, {"queue": 0, "backlog": 10}, 0) == 0
    assert Autoscaler(BOTH).sync(0, {"queue": 1e6, "backlog": 1e6}, 0) == 0


def test_the_last_replica_goes_after_the_cooldown_and_not_before() -> None:
    found = follow(Autoscaler(BOTH), [*steady(15, queue=1, backlog=0), *steady(900, queue=0, backlog=0)])
    assert found.index(0) * SYNC_S == pytest.approx(600 + SYNC_S)


def test_a_queue_that_cannot_be_read_from_the_start_brings_up_the_fallback() -> None:
    scaling = Scaling((QUEUE,), fallback=Fallback(failures=3, replicas=6), up=AT_ONCE)
    assert follow(Autoscaler(scaling), steady(60, queue=None)) == [0, 0, 0, 6]


def test_a_fallback_if_higher_keeps_a_busy_fleet() -> None:
    fallback = Fallback(failures=1, replicas=2, behavior="currentReplicasIfHigher")
    scaling = Scaling((QUEUE,), fallback=fallback, down=AT_ONCE)
    assert follow(Autoscaler(scaling), steady(120, queue=None), 30) == [30] * 8


def test_replicas_double_at_most_every_quarter_of_a_minute_by_default() -> None:
    found = follow(Autoscaler(Scaling((QUEUE,), maximum=64)), steady(120, queue=1000))
    assert found[:5] == [5, 10, 20, 40, 64]
