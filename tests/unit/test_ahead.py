"""Fetching one ahead changes neither the items nor the error, and stops when it is closed."""

from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest

from app.ahead import ahead


def test_all_items_come_in_order() -> None:
    assert list(ahead(iter(range(100)))) == list(range(100))
    assert list(ahead(iter(()))) == []


def test_the_next_is_made_while_one_is_in_use() -> None:
    second = Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with closing(ahead(items())) as found:
        assert next(found) == 1
        assert second.wait(10)


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)


def test_once_closed_nobody_uses_the_items() -> None:
    items = (number for number in range(10))
    with closing(ahead(items)) as found:
        next(found)
    assert next(items) == 2  # it would raise, if it still ran in the thread
