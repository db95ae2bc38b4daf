"""Properties of who joins next: nothing lost, nothing twice, never over a budget, nobody waits for ever."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.engine.scheduler import (
    CALM_STEPS,
    OVERTAKING_S,
    Budget,
    Join,
    Room,
    Wait,
    Waiting,
    next_join,
)

WAITS = st.floats(0, 5, allow_nan=False)
PIECES = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.just(100)), max_size=3, unique=True)
ROOMS = st.builds(
    Room,
    running=st.integers(0, 3),
    rows=st.integers(1, 6),
    tokens=st.integers(1, 800),
    kv_tokens=st.integers(0, 500),
)
WIDE = Room(running=1, rows=100, tokens=10_000, kv_tokens=10_000)


@st.composite
def rooms(draw: st.DrawFn, most: int = 16) -> list[Waiting]:
    """Rows in the order of their arrival; their pieces are chains of a few prefixes."""
    size = draw(st.integers(1, most))
    arrivals = sorted(draw(st.lists(st.floats(0, 10), min_size=size, max_size=size)))
    tails = st.integers(1, 90)
    return [
        Waiting(number, arrived, tuple(draw(PIECES)), draw(tails)) for number, arrived in enumerate(arrivals)
    ]


def row(
    number: int, *pieces: bytes, arrived: float = 0.0, size: int = 100, tail: int = 10, urgent: bool = False
) -> Waiting:
    return Waiting(number, arrived, tuple((piece, size) for piece in pieces), tail, urgent)


def join(
    waiting: list[Waiting], room: Room = WIDE, *, now: float = 0.0, resident: Iterable[bytes] = ()
) -> tuple[int, ...]:
    decision = next_join(waiting, now=now, room=room, resident=set(resident), max_wait_s=0)
    assert isinstance(decision, Join)
    return decision.numbers


def cost(waiting: list[Waiting], numbers: Iterable[int], resident: set[bytes]) -> tuple[int, int]:
    """Tokens to compute and of pieces to keep, where a piece counts once."""
    chosen = [each for each in waiting if each.number in set(numbers)]
    pieces = {key: size for each in chosen for key, size in each.pieces if key not in resident}
    return sum(pieces.values()) + sum(each.tail for each in chosen), sum(pieces.values())


@settings(deadline=None)
@given(rooms(), ROOMS, st.sets(st.sampled_from([b"a", b"b"])), st.floats(10, 20))
def test_those_who_join_are_within_every_budget_but_for_the_oldest_alone(
    waiting: list[Waiting], room: Room, resident: set[bytes], now: float
) -> None:
    joined = join(waiting, room, now=now, resident=resident)
    assert len(set(joined)) == len(joined) <= room.rows
    tokens, kept = cost(waiting, joined, resident)
    alone = room.running == 0 and joined == (0,)
    assert alone or (tokens <= room.tokens and kept <= room.kv_tokens) or not joined


@settings(deadline=None)
@given(rooms(), ROOMS)
def test_an_idle_engine_always_lets_the_oldest_in(waiting: list[Waiting], room: Room) -> None:
    assert 0 in join(waiting, replace(room, running=0), now=10)


@settings(deadline=None)
@given(rooms(), ROOMS, WAITS)
def test_everybody_joins_exactly_once(waiting: list[Waiting], room: Room, max_wait_s: float) -> None:
    joined: list[int] = []
    left = waiting
    while left:
        decision = next_join(
            left, now=100.0, room=replace(room, running=0), resident=set(), max_wait_s=max_wait_s
        )
        assert isinstance(decision, Join)
        joined += decision.numbers
        left = [each for each in left if each.number not in decision.numbers]
    assert sorted(joined) == [each.number for each in waiting]


@settings(deadline=None)
@given(rooms(), ROOMS, st.floats(0, 10))
def test_nobody_is_overtaken_who_has_waited_long(waiting: list[Waiting], room: Room, late: float) -> None:
    joined = join(waiting, room, now=waiting[0].arrived + OVERTAKING_S + 0.01 + late)
    assert joined == tuple(range(len(joined)))


@settings(deadline=None)
@given(rooms(), ROOMS, WAITS)
def test_an_idle_engine_waits_for_company_within_the_limit(
    waiting: list[Waiting], room: Room, max_wait_s: float
) -> None:
    room = replace(room, running=0, rows=100, coming=1)
    now = waiting[-1].arrived
    match next_join(waiting, now=now, room=room, resident=set(), max_wait_s=max_wait_s):
        case Wait(seconds):
            assert 0 < seconds <= waiting[0].arrived + max_wait_s - now
        case Join():
            assert now >= waiting[0].arrived + max_wait_s
    due = waiting[0].arrived + max_wait_s
    late = next_join(waiting, now=due + 1e-6, room=room, resident=set(), max_wait_s=max_wait_s)
    assert isinstance(late, Join)


def test_where_nobody_is_coming_nobody_is_waited_for() -> None:
    room = replace(WIDE, running=0, coming=0)
    assert next_join([row(0, arrived=5.0)], now=5.0, room=room, resident=set(), max_wait_s=1) == Join((0,))


def test_a_full_step_waits_for_nobody_and_rows_that_run_are_joined_at_once() -> None:
    waiting = [row(number, arrived=5.0) for number in range(3)]

    def decide(room: Room) -> Join | Wait:
        return next_join([*waiting, row(3, arrived=5.5)], now=5.5, room=room, resident=set(), max_wait_s=1)

    assert decide(replace(WIDE, running=0, coming=1)) == Wait(0.5)
    assert decide(replace(WIDE, running=0, coming=1, rows=4)) == Join((0, 1, 2, 3))
    assert decide(WIDE) == Join((0, 1, 2, 3))


def test_a_piece_that_several_need_or_that_is_there_is_counted_once_or_never() -> None:
    waiting = [row(number, b"image", tail=10) for number in range(5)]
    assert join(waiting, replace(WIDE, tokens=130)) == (0, 1, 2)
    assert join(waiting, replace(WIDE, kv_tokens=100)) == (0, 1, 2, 3, 4)
    assert join(waiting, replace(WIDE, kv_tokens=99)) == ()
    assert join(waiting, replace(WIDE, tokens=30, kv_tokens=0), resident=[b"image"]) == (0, 1, 2)


def test_rows_of_one_image_stand_side_by_side() -> None:
    waiting = [row(0, b"a"), row(1, b"b"), row(2, b"a", b"c"), row(3), row(4, b"b"), row(5, b"a")]
    assert join(waiting) == (0, 2, 5, 1, 4, 3)
    assert join(waiting, replace(WIDE, rows=3)) == (0, 2, 5)


def test_want_of_memory_lowers_the_budget_and_calm_raises_it_again() -> None:
    budget = Budget(64, 4096)
    budget.lower(rows=40, tokens=1000)
    assert (budget.rows, budget.tokens) == (20, 500)
    budget.lower(rows=1, tokens=0)  # a step that computed no prompt says nothing of prompts
    assert (budget.rows, budget.tokens) == (1, 500)
    for _ in range(CALM_STEPS):
        assert budget.rows == 1
        budget.passed()
    assert (budget.rows, budget.tokens) == (2, 1000)
    for _ in range(10 * CALM_STEPS):
        budget.passed()
    assert (budget.rows, budget.tokens) == (64, 4096)


def test_a_step_that_fails_again_starts_the_calm_anew() -> None:
    budget = Budget(8, 100)
    budget.lower(rows=8, tokens=80)
    for _ in range(CALM_STEPS - 1):
        budget.passed()
    budget.lower(rows=4, tokens=0)
    budget.passed()
    assert (budget.rows, budget.tokens) == (2, 40)


def test_urgent_rows_join_before_all_others_and_without_them() -> None:
    waiting = [row(0), row(1, urgent=True), row(2), row(3, urgent=True)]
    assert join(waiting) == (1, 3)
    assert join(waiting, now=2 * OVERTAKING_S) == (1, 3)


def test_an_idle_engine_waits_for_nobody_where_one_is_urgent() -> None:
    idle = Room(running=0, rows=4, tokens=1000, kv_tokens=1000, coming=3)
    assert next_join([row(0)], now=0, room=idle, resident=(), max_wait_s=1) == Wait(1)
    assert next_join([row(0, urgent=True)], now=0, room=idle, resident=(), max_wait_s=1) == Join((0,))


def test_an_urgent_row_that_is_longer_than_a_step_does_not_wait_until_all_have_ended() -> None:
    busy = Room(running=3, rows=4, tokens=150, kv_tokens=1000)
    long = [row(0, b"a", b"b"), row(1, b"a", b"c", urgent=True), row(2, b"d", urgent=True)]
    assert join(long[:1], busy) == ()
    assert join(long, busy) == (1,)


def test_an_urgent_row_does_not_join_without_room_for_its_pieces() -> None:
    assert join([row(0, b"a", urgent=True)], Room(running=3, rows=4, tokens=150, kv_tokens=50)) == ()
