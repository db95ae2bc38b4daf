"""The API's ear: one connection to Redis over which it hears what workers say of the jobs it holds lines for.

Whatever is not heard is read from Postgres at the end: Redis may be slow, flushed or gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.live_text import Piece

CONNECT_S = 2.0
AGAIN_S = 0.5  # between two tries to connect
# A subscription of the process's own keeps the connection in its mode while no line is held.
IDLE_CHANNEL = "vqueue:text"

log = structlog.get_logger()

Hear = Callable[[Piece], None]


def connect(url: str) -> Redis:
    """Nothing connects before the first use; what fails is tried again by us."""
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_S,
        socket_timeout=CONNECT_S,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )


class Ear:
    """For one event loop, on which `run` goes on until it is cancelled."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._hearers: dict[str, Hear] = {}
        self._line: PubSub | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # a connection that breaks fails in ways that its client does not name
                log.warning("redis_away", reason=type(error).__name__)
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        await self._client.aclose()

    @contextmanager
    def hearing(self, channel: str, hear: Hear) -> Iterator[None]:
        """Call `hear` with what is said on a channel while the block runs. It does not wait for Redis."""
        self._hearers[channel] = hear
        self._ask(lambda line: line.subscribe(channel))
        try:
            yield
        finally:
            del self._hearers[channel]
            self._ask(lambda line: line.unsubscribe(channel))

    async def _listen(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as line:
            await line.subscribe(IDLE_CHANNEL)
            self._line = line
            try:
                if self._hearers:
                    await line.subscribe(*self._hearers)
                async for message in line.listen():
                    self._tell(message["channel"].decode(), message["data"])
            finally:
                self._line = None

    def _tell(self, channel: str, data: bytes) -> None:
        if hear := self._hearers.get(channel):
            try:
                hear(Piece.unpack(data))
            except Exception:  # anybody may have said it, and those who listen on must not suffer
                log.warning("message_refused", channel=channel)

    def _ask(self, command: Callable[[PubSub], Awaitable[None]]) -> None:
        """Send a command; without a connection there is no need to, as the next one begins with all."""
        if self._line is None:
            return
        task = asyncio.create_task(self._send(command, self._line))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _send(self, command: Callable[[PubSub], Awaitable[None]], line: PubSub) -> None:
        with suppress(Exception):  # whoever listens meets it as well, and connects anew
            if line is self._line:
                await command(line)
