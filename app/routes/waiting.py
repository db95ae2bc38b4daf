"""Places that requests wait for, each tenant for its share."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from app.errors import Overloaded
from app.shares import Places

LOOK_AGAIN_S = 0.05


@asynccontextmanager
async def place_in_time(
    places: Places, tenant_id: str, *, wait_s: float, what: str, code: str, retry_after_s: int
) -> AsyncIterator[None]:
    """Hold a place while the block runs; `Overloaded` where none comes free within `wait_s`."""
    until = time.monotonic() + wait_s
    while not places.take(tenant_id):
        if time.monotonic() >= until:
            message = f"Your share of {what} is taken: wait until one is over."
            raise Overloaded(message, code=code, retry_after_s=retry_after_s)
        await anyio.sleep(LOOK_AGAIN_S)
    try:
        yield
    finally:
        places.leave(tenant_id)
