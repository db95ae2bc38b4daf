"""What routes need that hold the line while a job runs: they let go of it when the client does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from app.chats import Chat, Chats
from app.results import AnsweredJob

T = TypeVar("T")


class HungUp(Exception):
    """The client has gone."""


async def whole(request: Request, chats: Chats, chat: Chat) -> AnsweredJob:
    """The answer, once it is there."""

    async def wait() -> AnsweredJob:
        with chats.holding(chat):
            return await chat.whole()

    return await while_there(request, wait())


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives; HungUp, and the work is cancelled, if the client goes before."""
    working = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise HungUp
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
