"""Places are never more than there are, none is lost, and urgent ones come first."""

import asyncio

from workers.engine.places import Places


async def take(places: Places, name: str, seen: list[str], *, urgent: bool = False) -> None:
    async with places.place(urgent=urgent):
        seen.append(name)
        await asyncio.sleep(0)


def test_urgent_ones_are_let_in_before_those_that_wait_longer() -> None:
    async def run() -> list[str]:
        places, seen = Places(1), list[str]()
        async with asyncio.TaskGroup() as tasks:
            for name in ("a", "b", "c"):
                tasks.create_task(take(places, name, seen))
            tasks.create_task(take(places, "now", seen, urgent=True))
        return seen

    assert asyncio.run(run()) == ["a", "now", "b", "c"]


def test_no_more_are_inside_than_there_are_places() -> None:
    async def run() -> int:
        places, inside, most = Places(3), 0, 0

        async def enter(number: int) -> None:
            nonlocal inside, most
            async with places.place(urgent=number % 3 == 0):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*map(enter, range(20)))
        return most

    assert asyncio.run(run()) == 3


def test_who_is_cancelled_before_or_at_the_door_takes_no_place_along() -> None:
    async def run() -> list[str]:
        places, seen = Places(1), list[str]()
        async with places.place(urgent=False):
            waiting = asyncio.create_task(take(places, "waits", seen))
            called = asyncio.create_task(take(places, "called", seen, urgent=True))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        called.cancel()
        await asyncio.gather(waiting, called, return_exceptions=True)
        await asyncio.wait_for(take(places, "later", seen), 5)
        return seen

    assert asyncio.run(run()) == ["later"]
