"""Tells the API over Redis what the engine says of interactive jobs, while it says it."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from app import telemetry
from app.live_text import Piece, text_channel
from app.states import Priority
from app.store.jobs import ClaimedJob, Held
from workers.answers import storable
from workers.reasoning import AnswerOnly

# Text is gathered for this long: of a model that gives 100 tokens a second, two or three.
GATHER_S = 0.025
# How long an end is told again when nobody has heard it: its caller may be about to listen.
UNHEARD_S = 1.0
CONNECT_S, REPLY_S, AWAY_PAUSE_S = 0.2, 0.5, 1.0

log = structlog.get_logger()


def connect(url: str) -> Redis:
    """A client that gives up soon: what is not told is read from Postgres."""
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_S,
        socket_timeout=REPLY_S,
        retry=Retry(NoBackoff(), 0),
    )


@dataclass(eq=False)
class _Told:
    """What an attempt has said, and up to which character somebody has heard it."""

    held: Held
    channel: str
    text: str = ""
    heard: int = 0
    changed: bool = False
    ended_at: float | None = None

    def news(self) -> Piece:
        self.changed = False
        return Piece(self.held.attempt, self.heard, self.text[self.heard :], self.ended_at is not None)


class Teller:
    """Engines' threads hand text in, one thread publishes it; a Redis that is away costs nobody time.

    A piece begins where the last one ended that somebody heard, so that who comes late or comes back misses
    nothing.
    """

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._told: dict[Held, _Told] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tell", daemon=True)
        self._thread.start()

    def listener(self, job: ClaimedJob) -> Callable[[str], None] | None:
        """Takes the text of a claimed job piece by piece, and tells the answer; None where nobody waits."""
        if job.priority is not Priority.INTERACTIVE:
            return None
        told = _Told(Held(job.id, job.attempt), text_channel(job.tenant_id, job.id))
        with self._changed:
            self._told[told.held] = told

        def listen(text: str) -> None:
            with self._changed:
                told.text += storable(text)
                told.changed = True
                self._changed.notify()

        return AnswerOnly(listen)

    def ended(self, held: Sequence[Held]) -> None:
        """How these attempts ended is recorded."""
        with self._changed:
            for told in filter(None, map(self._told.get, held)):
                told.ended_at, told.changed = time.monotonic(), True
            self._changed.notify()

    def forget(self, held: Sequence[Held]) -> None:
        """These attempts are over: those that have not ended say nothing more."""
        with self._changed:
            for told in filter(None, map(self._told.get, held)):
                if told.ended_at is None:
                    del self._told[told.held]

    def has_news(self) -> bool:
        """Whether there is something that was not published yet."""
        return any(told.changed for told in self._told.values())

    def close(self) -> None:
        """Tell what is left, if Redis takes it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self.has_news())
            fine = self._tell()
            with self._changed:
                self._changed.wait_for(lambda: self._closed, GATHER_S if fine else AWAY_PAUSE_S)
        self._tell()

    def _tell(self) -> bool:
        """Publish what is new; False when Redis did not take it."""
        with self._changed:
            news = [(told, told.news()) for told in self._told.values() if told.changed]
        hearers = self._publish(news) if news else []
        with self._changed:
            for (told, piece), count in zip(news, hearers or [0] * len(news), strict=True):
                self._note(told, piece, is_heard=count > 0)
        return len(hearers) == len(news)

    def _publish(self, news: Sequence[tuple[_Told, Piece]]) -> list[int]:
        """How many have heard each; none at all where Redis is away."""
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for told, piece in news:
                    pipe.publish(told.channel, piece.pack())
                return pipe.execute()
        except (RedisError, OSError) as error:
            telemetry.TEXT_FAULTS.inc()
            log.warning("text_not_told", jobs=len(news), error=type(error).__name__)
            return []

    def _note(self, told: _Told, piece: Piece, *, is_heard: bool) -> None:
        if is_heard:
            told.heard = piece.offset + len(piece.text)
        if piece.ended and (is_heard or _is_old(told)):
            self._told.pop(told.held, None)
        elif piece.ended:
            told.changed = True


def _is_old(told: _Told) -> bool:
    return told.ended_at is not None and time.monotonic() - told.ended_at > UNHEARD_S
