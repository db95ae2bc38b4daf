"""A client that is slow on purpose holds nobody up: it is given up, and others have their share meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request

from app.errors import Overloaded
from app.routes.bodies import LEAST_BYTES_S, SILENCE_S, TooSlow, blocks
from app.routes.streaming import Streamed
from app.routes.waiting import place_in_time
from app.shares import Places


class SlowBody:
    """A body whose blocks each take so many seconds, on a clock of its own."""

    def __init__(self, *sizes: int, every_s: float) -> None:
        self.now = 0.0
        self._sizes = sizes
        self._every_s = every_s

    async def stream(self) -> AsyncIterator[bytes]:
        for size in self._sizes:
            self.now += self._every_s
            yield b"x" * size

    async def read(self) -> int:
        request: Any = self
        return sum([len(block) async for block in blocks(request, clock=lambda: self.now)])


def test_a_byte_now_and_then_is_no_upload() -> None:
    with pytest.raises(TooSlow, match="bytes a second"):
        asyncio.run(SlowBody(*[1] * 10, every_s=SILENCE_S - 10).read())


def test_a_slow_line_is_waited_for_as_long_as_it_goes_on() -> None:
    body = SlowBody(*[50 * LEAST_BYTES_S] * 100, every_s=50.0)
    assert asyncio.run(body.read()) == 100 * 50 * LEAST_BYTES_S


def test_who_has_its_share_of_places_waits_and_is_then_refused_while_others_come_in() -> None:
    async def act() -> None:
        places = Places(4)

        def place(tenant: str, wait_s: float = 0.0) -> Any:
            return place_in_time(
                places, tenant, wait_s=wait_s, what="uploads", code="too_many_uploads", retry_after_s=5
            )

        async with AsyncExitStack() as held:
            for _ in range(2):
                await held.enter_async_context(place("tenant_a"))
            with pytest.raises(Overloaded, match="share of uploads"):
                await held.enter_async_context(place("tenant_a"))
            await held.enter_async_context(place("tenant_b"))
        async with asyncio.timeout(10):
            first = place("tenant_a")
            await first.__aenter__()
            async with place("tenant_a"):
                waiting = asyncio.ensure_future(place("tenant_a", wait_s=10.0).__aenter__())
                await asyncio.sleep(0)
                assert not waiting.done()
                await first.__aexit__(None, None, None)
                await waiting

    asyncio.run(act())


def answer(closed: list[bool]) -> Generator[bytes]:
    try:
        while True:
            yield b"x"
    finally:
        closed.append(True)


async def serve(send: Any, closed: list[bool], *, stuck_s: float) -> None:
    scope: Any = {"type": "http", "asgi": {"spec_version": "2.3"}, "headers": [], "method": "GET"}
    request = Request(scope)

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    streamed = Streamed(answer(closed), media_type="text/csv", headers={}, stuck_s=stuck_s)
    await streamed(request.scope, receive, send)


def test_a_client_that_takes_nothing_is_given_up_and_lets_go() -> None:
    closed: list[bool] = []

    async def stuck(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def act() -> None:
        async with asyncio.timeout(20):
            await serve(stuck, closed, stuck_s=0.05)

    asyncio.run(act())
    assert closed == [True]


def test_what_an_answer_holds_is_let_go_when_its_client_hangs_up() -> None:
    closed: list[bool] = []

    async def act() -> None:
        taking = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                taking.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(serve(send, closed, stuck_s=60.0))
        await taking.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert closed == [True]

    asyncio.run(act())
