"""Properties of who joins next: nothing lost, nothing twice, never over the limit, nobody waits for ever."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.engine.scheduler import Join, Wait, Waiting, next_group

LIMITS = st.integers(1, 6)
WAITS = st.floats(0, 5, allow_nan=False)


@st.composite
def rooms(draw: st.DrawFn, most: int = 24) -> list[Waiting]:
    """Rows in the order of their arrival."""
    size = draw(st.integers(1, most))
    arrivals = sorted(draw(st.lists(st.floats(0, 10), min_size=size, max_size=size)))
    lengths = draw(st.lists(st.integers(1, 500), min_size=size, max_size=size))
    rows = zip(arrivals, lengths, strict=True)
    return [Waiting(number, arrived, length) for number, (arrived, length) in enumerate(rows)]


@settings(deadline=None)
@given(rooms(), LIMITS, WAITS, st.floats(10, 20))
def test_a_group_is_within_the_limit_and_holds_the_oldest(
    room: list[Waiting], limit: int, max_wait_s: float, now: float
) -> None:
    match next_group(room, now=now, row_limit=limit, max_wait_s=max_wait_s):
        case Join(numbers):
            assert 0 in numbers
            assert len(set(numbers)) == len(numbers) == min(limit, len(room))
        case Wait(seconds):
            assert len(room) < limit
            assert 0 < seconds <= max_wait_s


@settings(deadline=None)
@given(rooms(), LIMITS, WAITS)
def test_everybody_joins_exactly_once(room: list[Waiting], limit: int, max_wait_s: float) -> None:
    joined: list[int] = []
    while room:
        decision = next_group(room, now=100.0, row_limit=limit, max_wait_s=max_wait_s)
        assert isinstance(decision, Join)
        joined += decision.numbers
        room = [row for row in room if row.number not in decision.numbers]
    assert sorted(joined) == list(range(len(joined)))


@settings(deadline=None)
@given(rooms(), LIMITS, WAITS)
def test_nobody_waits_longer_than_the_limit_while_the_engine_is_idle(
    room: list[Waiting], limit: int, max_wait_s: float
) -> None:
    due = room[0].arrived + max_wait_s
    decision = next_group(room, now=due, row_limit=limit, max_wait_s=max_wait_s)
    assert isinstance(decision, Join)


@settings(deadline=None)
@given(rooms(), LIMITS)
def test_nobody_is_passed_over_by_more_groups_than_there_are_older_rows(
    room: list[Waiting], limit: int
) -> None:
    order: dict[int, int] = {}
    groups = 0
    while room:
        decision = next_group(room, now=100.0, row_limit=limit, max_wait_s=0)
        assert isinstance(decision, Join)
        order |= dict.fromkeys(decision.numbers, groups)
        room = [row for row in room if row.number not in decision.numbers]
        groups += 1
    assert all(group <= number for number, group in order.items())


def test_a_full_room_does_not_wait() -> None:
    room = [Waiting(number, 5.0, 10) for number in range(3)]
    assert next_group(room, now=5.0, row_limit=3, max_wait_s=1) == Join((0, 1, 2))
    assert next_group(room, now=5.0, row_limit=4, max_wait_s=1) == Wait(1.0)


def test_rows_of_like_length_join_the_oldest() -> None:
    lengths = [100, 5, 98, 900, 105, 6]
    room = [Waiting(number, float(number), length) for number, length in enumerate(lengths)]
    assert next_group(room, now=9.0, row_limit=3, max_wait_s=0) == Join((2, 0, 4))
