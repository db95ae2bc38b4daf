"""The API's ear goes on hearing, whatever is said to it and however its connection breaks."""

import asyncio

from redis.asyncio import Redis

from app.hearing import AGAIN_S, Ear, connect
from app.live_text import Piece

CHANNEL = "vqueue:text:tenant_a:7"
GOOD = Piece(1, 0, "red", False)


async def heard(ear: Ear, url: str, *said: bytes) -> list[Piece]:
    """What reaches a hearer, the last of what is said over and over until it does."""
    pieces: list[Piece] = []
    running = asyncio.create_task(ear.run())
    async with Redis.from_url(url) as redis, asyncio.timeout(20):
        with ear.hearing(CHANNEL, pieces.append):
            while not await redis.publish(CHANNEL, said[0]):
                await asyncio.sleep(0.01)
            while not pieces:
                await redis.publish(CHANNEL, said[-1])
                await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await ear.close()
    return pieces


def test_what_makes_no_sense_is_passed_over(cache_url: str) -> None:
    for nonsense in (b'[1e999,0,"x",false]', b"not json", b"[1]", b"\xff"):
        assert GOOD in asyncio.run(heard(Ear(connect(cache_url)), cache_url, nonsense, GOOD.pack()))


class Breaking(Ear):
    """Its connection breaks once in a way that the client has no name for."""

    broken = False

    async def _listen(self) -> None:
        if not self.broken:
            self.broken = True
            raise AttributeError("'NoneType' object has no attribute 'writelines'")
        await super()._listen()


def test_a_connection_that_breaks_oddly_is_made_anew(cache_url: str) -> None:
    assert AGAIN_S < 1
    assert GOOD in asyncio.run(heard(Breaking(connect(cache_url)), cache_url, GOOD.pack()))
