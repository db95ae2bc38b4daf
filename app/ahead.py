"""Items fetched one ahead, so that whoever makes them and whoever uses them work at the same time."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Generator[T]:
    """The same items, and the same error; each is made in a thread while the one before is in use.

    Close it before what `items` reads from: it waits for the item that is being made.
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # pyright: ignore[reportReturnType] - it is not the end
