"""The waiting room: who leaves it, in which state."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from app.errors import TransientWork
from tests.requests import ask
from tests.waiting import eventually
from workers.engine.base import Answer
from workers.engine.prepare import Prepared
from workers.engine.prompt import Prompt
from workers.engine.waiting import GROUPS_AHEAD, WaitingRoom


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def row(arrived: float, *, deadline: float | None = None, length: int = 5) -> Prepared:
    future: Future[Answer] = Future()
    prompt = Prompt(np.zeros(length, np.int64), np.zeros((3, length), np.int64), length)
    return Prepared(ask("a", deadline=deadline), future, prompt, (), arrived)


def room(*rows: Prepared, clock: Clock | None = None) -> WaitingRoom:
    """Of two places, in which nobody waits for company."""
    room = WaitingRoom(row_limit=2, max_wait_s=0, clock=clock or Clock())
    for each in rows:
        room.add(each)
    return room


def test_those_who_join_can_no_longer_be_cancelled() -> None:
    first, second = row(90), row(91)
    assert room(first, second).take() == [first, second]
    assert not first.future.cancel()


def test_the_cancelled_and_the_late_take_no_place() -> None:
    cancelled, late, first, second = row(80), row(81, deadline=99), row(90), row(91)
    cancelled.future.cancel()
    waiting = room(cancelled, late, first, second)
    assert [waiting.take(), waiting.take()] == [[], [first, second]]
    with pytest.raises(TransientWork, match="job_timeout"):
        late.future.result(timeout=0)


def test_a_full_room_lets_nobody_in_until_some_have_left() -> None:
    waiting = WaitingRoom(row_limit=2, max_wait_s=0, clock=Clock())
    rows = [row(90 + number) for number in range(40)]
    taken: list[Prepared] = []
    with ThreadPoolExecutor(4) as pool:
        pool.map(waiting.add, rows)
        eventually(lambda: len(waiting) == 2 * GROUPS_AHEAD)
        while len(taken) < len(rows):
            assert len(waiting) <= 2 * GROUPS_AHEAD
            taken += waiting.take() or []
    assert {each.arrived for each in taken} == {each.arrived for each in rows}


def test_a_closed_room_lets_go_of_those_before_its_door() -> None:
    waiting = WaitingRoom(row_limit=1, max_wait_s=0, clock=Clock())
    rows = [row(90 + number) for number in range(GROUPS_AHEAD + 1)]
    with ThreadPoolExecutor(1) as pool:
        pool.map(waiting.add, rows)
        eventually(lambda: len(waiting) == GROUPS_AHEAD)
        waiting.close()
    assert all(isinstance(each.future.exception(timeout=0), TransientWork) for each in rows)


def test_a_closed_room_sends_everybody_back() -> None:
    inside, after = row(90), row(91)
    waiting = room(inside)
    waiting.close()
    waiting.add(after)
    assert waiting.take() is None
    for each in (inside, after):
        with pytest.raises(TransientWork, match="engine_closed"):
            each.future.result(timeout=0)
