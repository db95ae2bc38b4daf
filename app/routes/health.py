"""Whether the process lives, and whether what it stands on is there."""

import asyncio
from collections.abc import Sequence

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.readiness import OK, Check

# A check that hangs is as bad as one that fails.
CHECK_S = 3.0


def health_routes(checks: Sequence[Check]) -> APIRouter:
    router = APIRouter(tags=["health"])
    # A pool of its own: checks that hang must not take threads from requests.
    threads = anyio.CapacityLimiter(2 * len(checks))

    @router.get("/healthz")
    async def alive() -> dict[str, str]:
        """The process answers; nothing else is looked at."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {"description": "Something is missing; it is named."}})
    async def ready() -> JSONResponse:
        """Whether database and object store are there; 503 names what is not. The others are only told."""
        results = await asyncio.gather(*(_run(check, threads) for check in checks))
        found = {check.name: result for check, result in zip(checks, results, strict=True)}
        fine = all(found[check.name] == OK for check in checks if check.needed)
        status = {"status": "ok" if fine else "unavailable", "checks": found}
        return JSONResponse(status, status_code=200 if fine else 503)

    return router


async def _run(check: Check, threads: anyio.CapacityLimiter) -> str:
    try:
        async with asyncio.timeout(CHECK_S):
            return await run_sync(check.run, limiter=threads, abandon_on_cancel=True)
    except TimeoutError:
        return f"no answer within {CHECK_S:.0f} seconds"
