"""How many requests a tenant may make in a minute, counted in Redis over all API processes."""

import time
from dataclasses import dataclass

import structlog
from limits import RateLimitItemPerMinute
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis import RedisError

from app import telemetry

log = structlog.get_logger()

# Longer than a request may wait for being counted; then it is let in, and the next ones with it for a while.
ANSWER_S = 0.25
AWAY_S = 5.0


@dataclass(frozen=True)
class Allowance:
    """What is left of a minute. `reset_s` is when it will be whole again."""

    limit: int
    remaining: int
    reset_s: float
    allowed: bool

    def headers(self) -> list[tuple[bytes, bytes]]:
        """As OpenAI has them."""
        return [
            (b"x-ratelimit-limit-requests", str(self.limit).encode()),
            (b"x-ratelimit-remaining-requests", str(self.remaining).encode()),
            (b"x-ratelimit-reset-requests", f"{self.reset_s:.3g}s".encode()),
        ]


class Throttle:
    """Safe to share among threads. Without Redis nobody is held up: a limit is for fairness."""

    def __init__(self, redis_url: str) -> None:
        storage = RedisStorage(redis_url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)
        self._limiter = SlidingWindowCounterRateLimiter(storage)
        self._away_until = 0.0

    def hit(self, tenant_id: str, per_minute: int) -> Allowance | None:
        """Count one request; None where nobody counts."""
        if time.monotonic() < self._away_until:
            return None
        item = RateLimitItemPerMinute(per_minute, namespace="vqueue:rate")
        try:
            allowed = self._limiter.hit(item, tenant_id)
            window = self._limiter.get_window_stats(item, tenant_id)
        except (RedisError, OSError) as error:
            self._away_until = time.monotonic() + AWAY_S
            telemetry.RATES_UNCOUNTED.inc()
            log.warning("rate_uncounted", error=type(error).__name__)
            return None
        reset_s = max(0.0, window.reset_time - time.time())
        return Allowance(per_minute, max(0, window.remaining), reset_s, allowed)
