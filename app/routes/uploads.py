"""Uploads over HTTP, whoever sends them: streamed, few at once, each tenant for its share."""

from collections.abc import Callable, Iterator
from functools import partial

import anyio
from anyio.from_thread import run
from anyio.to_thread import run_sync
from fastapi import Request

from app.files import Files
from app.multipart import Form, Part
from app.routes.bodies import blocks
from app.routes.waiting import place_in_time
from app.shares import Places
from app.store.files import FileRow

# An upload holds a thread for as long as its client sends, and about three parts of 8 MiB: more of them wait
# for each other, and not for the threads of other requests.
UPLOADS = 16
WAIT_S, RETRY_AFTER_S = 20.0, 5  # for a place among them

Parts = Iterator[Part]


class Uploads:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._threads, self._places = anyio.CapacityLimiter(UPLOADS), Places(UPLOADS)

    async def keep(
        self,
        request: Request,
        tenant_id: str,
        *,
        idempotency_key: str | None = None,
        checked: Callable[[Parts], Parts] = iter,
    ) -> FileRow:
        """Keep the file of a multipart body; `checked`, a generator, may refuse its parts as they come."""
        form = Form(request.headers.get("content-type"), _pulled(request))
        keep = partial(self._files.upload, tenant_id, checked(form.parts()), idempotency_key=idempotency_key)
        async with place_in_time(
            self._places,
            tenant_id,
            wait_s=WAIT_S,
            what=f"the {UPLOADS} uploads at once",
            code="too_many_uploads",
            retry_after_s=RETRY_AFTER_S,
        ):
            return await run_sync(keep, limiter=self._threads)


def _pulled(request: Request) -> Iterator[bytes]:
    """The body for a thread, which takes each block from the event loop when it is ready for it."""
    stream = blocks(request)

    async def pull() -> bytes | None:
        return await anext(stream, None)

    while (block := run(pull)) is not None:
        yield block
