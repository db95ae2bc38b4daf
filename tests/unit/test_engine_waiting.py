"""The waiting room: who leaves it, in which state."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.errors import TransientWork
from tests.requests import ask
from tests.waiting import eventually
from workers.engine.base import Answer
from workers.engine.cuts import Cut, Plan, PromptKey
from workers.engine.prefixes import Node, PrefixCache
from workers.engine.prepare import Prepared
from workers.engine.prompt import Prompt
from workers.engine.scheduler import Room
from workers.engine.waiting import PATCH_BYTES, WaitingRoom

TWO = Room(running=0, rows=2, tokens=100, kv_tokens=100)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def row(
    arrived: float,
    *,
    deadline: float | None = None,
    length: int = 5,
    pin: Node | None = None,
    urgent: bool = False,
) -> Prepared:
    future: Future[Answer] = Future()
    prompt = Prompt(np.zeros(length, np.int64), np.zeros((3, length), np.int64), length)
    request = replace(ask("a", deadline=deadline), urgent=urgent)
    return Prepared(request, future, prompt, Plan((), PromptKey("")), (), arrived, pin)


def opened(*rows: Prepared, places: int = 8, prefixes: PrefixCache | None = None) -> WaitingRoom:
    """A room in which nobody waits for company."""
    prefixes = prefixes or PrefixCache(budget=0)
    waiting = WaitingRoom(places=places, max_wait_s=0, prefixes=prefixes, clock=Clock())
    for each in rows:
        waiting.add(each)
    return waiting


def test_those_who_join_can_still_be_cancelled() -> None:
    first, second = row(90), row(91)
    assert opened(first, second).take(TWO) == [first, second]
    assert first.future.cancel()


def test_the_cancelled_and_the_late_take_no_place() -> None:
    cancelled, late, first, second = row(80), row(81, deadline=99), row(90), row(91)
    cancelled.future.cancel()
    waiting = opened(cancelled, late, first, second)
    assert waiting.take(TWO) == [first, second]
    assert not len(waiting)
    with pytest.raises(TransientWork, match="job_timeout"):
        late.future.result(timeout=0)


def test_a_full_room_lets_nobody_in_until_some_have_left() -> None:
    waiting = opened(places=8)
    rows = [row(90 + number) for number in range(40)]
    taken: list[Prepared] = []
    with ThreadPoolExecutor(4) as pool:
        pool.map(waiting.add, rows)
        eventually(lambda: len(waiting) == 8)
        while len(taken) < len(rows):
            assert len(waiting) <= 8
            taken += waiting.take(TWO) or []
    assert {each.arrived for each in taken} == {each.arrived for each in rows}


def test_a_full_room_lets_an_urgent_one_in_and_take_its_turn_first() -> None:
    ordinary, urgent = row(90), row(91, urgent=True)
    waiting = opened(ordinary, places=1)
    waiting.add(urgent)
    assert waiting.take(replace(TWO, running=1)) == [urgent]
    assert waiting.take(TWO) == [ordinary]


def test_a_closed_room_lets_go_of_those_before_its_door() -> None:
    waiting = opened(places=4)
    rows = [row(90 + number) for number in range(5)]
    with ThreadPoolExecutor(1) as pool:
        pool.map(waiting.add, rows)
        eventually(lambda: len(waiting) == 4)
        waiting.close()
    assert all(isinstance(each.future.exception(timeout=0), TransientWork) for each in rows)


def test_a_closed_room_sends_everybody_back() -> None:
    inside, after = row(90), row(91)
    waiting = opened(inside)
    waiting.close()
    waiting.add(after)
    assert waiting.take(TWO) is None
    for each in (inside, after):
        with pytest.raises(TransientWork, match="engine_closed"):
            each.future.result(timeout=0)


def test_an_engine_that_runs_does_not_wait_for_anybody() -> None:
    busy = replace(TWO, running=3)
    assert opened().take(busy) == []
    assert opened(row(90)).take(replace(busy, rows=0)) == []


def test_a_room_is_full_of_patches_that_the_tower_has_yet_to_see() -> None:
    class Picture(Prepared):
        @property
        def waiting_patches(self) -> dict[Any, int]:
            return {self.arrived: PATCH_BYTES // 2}

    pictures = [Picture(**vars(row(90 + number))) for number in range(3)]
    waiting = opened()
    with ThreadPoolExecutor(1) as pool:
        pool.map(waiting.add, pictures)
        eventually(lambda: len(waiting) == 2)
        assert waiting.take(TWO) == pictures[:2]
        eventually(lambda: len(waiting) == 1)
        waiting.close()


def test_whoever_leaves_without_joining_lets_go_of_what_it_held() -> None:
    prefixes = PrefixCache(budget=1000)
    pins = [held(prefixes, key) for key in (b"cancelled", b"late", b"joins", b"closed")]
    rows = [row(90, pin=pins[0]), row(91, deadline=99, pin=pins[1]), row(92, pin=pins[2])]
    rows[0].future.cancel()
    waiting = opened(*rows, prefixes=prefixes)
    assert waiting.take(TWO) == [rows[2]]
    waiting.add(row(93, pin=pins[3]))
    waiting.close()
    assert [pin.refs for pin in pins] == [0, 0, 1, 0]


def held(prefixes: PrefixCache, key: bytes) -> Node:
    node = prefixes.claim([Cut(5, key, built=True)])
    assert node is not None
    prefixes.fill(node, np.zeros(5))
    prefixes.complete(node)
    return node
