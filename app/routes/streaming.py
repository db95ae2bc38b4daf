"""Answers that are made while they are sent, to clients that may take their time, or none at all."""

import asyncio
from collections.abc import Generator, Mapping

import anyio
import structlog
from anyio.to_thread import run_sync
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

# A client that has taken nothing for so long is given up: what the answer holds is wanted by others.
STUCK_S = 60.0

log = structlog.get_logger()


class Streamed(StreamingResponse):
    """Sends blocks, and closes their generator as soon as nobody takes them any more."""

    def __init__(
        self,
        blocks: Generator[bytes],
        *,
        media_type: str,
        headers: Mapping[str, str],
        stuck_s: float = STUCK_S,
    ) -> None:
        super().__init__(blocks, media_type=media_type, headers=headers)
        self._blocks = blocks
        self._stuck_s = stuck_s

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._stuck_s):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.info("reader_given_up", after_s=self._stuck_s)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(self._blocks.close)
