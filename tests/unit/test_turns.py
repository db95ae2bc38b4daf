"""Chunks get their turns by class and arrival, as many as there are seats; some run by themselves."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pytest

from app.planner import Lane
from app.states import Priority
from tests.waiting import eventually
from workers.turns import Turns

STANDARD = Lane("m")
BACKGROUND = Lane("m", Priority.BACKGROUND)
INTERACTIVE = Lane("m", Priority.INTERACTIVE)
OTHER_MODEL = Lane("n")


class Journey:
    """A chunk on its way in a thread: aboard once it has its turn, until it is told to arrive."""

    def __init__(self, turns: Turns, pool: ThreadPoolExecutor, lane: Lane, *, alone: bool = False) -> None:
        self.aboard = Event()
        self._arrive = Event()
        before = turns.waiting
        self.done: Future[bool] = pool.submit(self._travel, turns, lane, alone)
        eventually(lambda: self.aboard.is_set() or self.done.done() or turns.waiting > before)

    def _travel(self, turns: Turns, lane: Lane, alone: bool) -> bool:
        with turns.place(lane, alone=alone) as place:
            if not place.wait(None):
                return False
            self.aboard.set()
            return self._arrive.wait(60)

    @property
    def waits(self) -> bool:
        return not self.aboard.is_set() and not self.done.done()

    def arrive(self) -> None:
        assert self.aboard.wait(60)
        self._arrive.set()
        assert self.done.result(timeout=60)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as pool:
        yield pool


def test_a_model_has_so_many_seats_and_another_has_its_own(pool: ThreadPoolExecutor) -> None:
    turns = Turns(2)
    first, second, third = (Journey(turns, pool, STANDARD) for _ in range(3))
    other = Journey(turns, pool, OTHER_MODEL)
    assert (first.waits, second.waits, third.waits, other.waits) == (False, False, True, False)
    for journey in (first, third, second, other):
        journey.arrive()


def test_a_higher_class_goes_first_whoever_came_first(pool: ThreadPoolExecutor) -> None:
    turns = Turns(1)
    running = Journey(turns, pool, BACKGROUND)
    leisure, urgent = Journey(turns, pool, BACKGROUND), Journey(turns, pool, STANDARD)
    running.arrive()
    assert urgent.aboard.wait(60)
    assert leisure.waits
    urgent.arrive()
    leisure.arrive()


def test_of_one_class_who_came_first_goes_first(pool: ThreadPoolExecutor) -> None:
    turns = Turns(1)
    running, *others = (Journey(turns, pool, STANDARD) for _ in range(4))
    running.arrive()
    for journey, behind in zip(others, [*others[1:], None], strict=True):
        assert journey.aboard.wait(60)
        assert behind is None or behind.waits
        journey.arrive()


def test_interactive_chunks_wait_for_no_seat(pool: ThreadPoolExecutor) -> None:
    turns = Turns(1)
    journeys = [Journey(turns, pool, lane) for lane in (STANDARD, STANDARD, *[INTERACTIVE] * 3)]
    assert [journey.waits for journey in journeys] == [False, True, False, False, False]
    for journey in journeys:
        journey.arrive()


def test_one_who_is_alone_waits_for_all_others_and_they_for_it(pool: ThreadPoolExecutor) -> None:
    turns = Turns(4)
    first, chat = Journey(turns, pool, OTHER_MODEL), Journey(turns, pool, INTERACTIVE)
    lonely = Journey(turns, pool, STANDARD, alone=True)
    later = Journey(turns, pool, STANDARD)
    first.arrive()
    assert lonely.waits
    chat.arrive()
    assert lonely.aboard.wait(60)
    meanwhile = Journey(turns, pool, INTERACTIVE)
    assert (later.waits, meanwhile.waits) == (True, True)
    lonely.arrive()
    later.arrive()
    meanwhile.arrive()


def test_one_who_is_alone_lets_pass_who_stands_before_it_in_the_line() -> None:
    turns = Turns(1)
    with ExitStack() as journey:
        assert journey.enter_context(turns.place(STANDARD)).wait(0)
        with turns.place(BACKGROUND, alone=True) as lonely, turns.place(OTHER_MODEL) as before:
            journey.close()
            assert not lonely.wait(0)
            assert before.wait(0)


def test_a_seat_that_a_standard_chunk_leaves_is_kept_for_the_next_one_a_moment() -> None:
    now = 0.0
    turns = Turns(1, kept_s=0.2, clock=lambda: now)
    with turns.place(STANDARD) as place:
        assert place.wait(0)
    with turns.place(BACKGROUND) as leisure:
        assert not leisure.wait(0)
        with turns.place(STANDARD) as place:
            assert place.wait(0)
        now += 0.2
        assert leisure.wait(0)


def test_two_who_are_alone_go_one_after_the_other(pool: ThreadPoolExecutor) -> None:
    turns = Turns(4)
    first, second = (Journey(turns, pool, STANDARD, alone=True) for _ in range(2))
    assert (first.waits, second.waits) == (False, True)
    first.arrive()
    second.arrive()


def test_interactive_chunks_pass_one_who_wants_to_be_alone_until_its_patience_ends(
    pool: ThreadPoolExecutor,
) -> None:
    turns = Turns(4, patience_s=0.2)
    running = Journey(turns, pool, INTERACTIVE)
    lonely = Journey(turns, pool, STANDARD, alone=True)
    chats = [running]

    def chat_must_wait() -> bool:
        chats.append(Journey(turns, pool, INTERACTIVE))
        if not chats[-1].waits:
            chats.pop().arrive()
            return False
        return True

    assert not chat_must_wait()
    eventually(chat_must_wait)
    running.arrive()
    lonely.arrive()
    chats[-1].arrive()


def test_who_has_waited_long_enough_leaves_and_the_next_moves_up(pool: ThreadPoolExecutor) -> None:
    turns = Turns(1)
    running = Journey(turns, pool, STANDARD)
    with turns.place(STANDARD) as place:
        behind = Journey(turns, pool, STANDARD)
        assert not place.wait(0.01)
    running.arrive()
    behind.arrive()


def test_when_turns_end_who_waits_and_who_comes_is_told_so_and_who_runs_goes_on(
    pool: ThreadPoolExecutor,
) -> None:
    turns = Turns(1)
    running, waiting = (Journey(turns, pool, STANDARD) for _ in range(2))
    turns.close()
    assert not waiting.done.result(60)
    with turns.place(INTERACTIVE) as place:
        assert not place.wait(None)
    running.arrive()
