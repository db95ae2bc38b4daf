"""The feature cache's second tier: Redis or Valkey, which may be slow, full or gone unnoticed by a job."""

import queue
import threading
import time
from collections.abc import Callable

import torch
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from workers.engine.base import Observer
from workers.engine.feature_bytes import RefusedBytes, pack, unpack
from workers.engine.features import FeatureKey, Features, Shape

CONNECT_S = 0.2
REPLY_S = 0.5  # per socket read; 32 MiB over 10 Gb/s take 0.03 s
PAUSE_S = 5.0  # nothing is asked for this long after a failure
PENDING_BYTES = 256 * 2**20  # features that wait to be written; more are dropped


class Breaker:
    """Stops asking a server for `pause_s` after it failed: a dead one costs one time limit a pause."""

    def __init__(self, *, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._open_until = float("-inf")

    def closed(self) -> bool:
        return self._clock() >= self._open_until

    def trip(self) -> None:
        self._open_until = self._clock() + self._pause_s


class RedisTier:
    """Reads on the caller's thread, writes on one of its own; a full Redis still serves reads."""

    def __init__(self, *, client: Redis, ttl_s: int, observer: Observer, pause_s: float = PAUSE_S) -> None:
        self._client = client
        self._ttl_s = ttl_s
        self._observer = observer
        self._reads = Breaker(pause_s=pause_s)
        self._writes = Breaker(pause_s=pause_s)
        self._pending: queue.SimpleQueue[tuple[FeatureKey, Features] | None] = queue.SimpleQueue()
        self._pending_bytes = 0
        self._idle = threading.Condition()
        self._writer = threading.Thread(target=self._write_pending, name="feature-writer", daemon=True)
        self._writer.start()

    def read(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype) -> Features | None:
        if not self._reads.closed():
            return None
        name = key.name
        try:
            data = self._client.get(name)
        except (RedisError, OSError):
            self._reads.trip()
            self._observer.feature_store_failed(operation="read")
            return None
        return self._unpack(name, data, shape, dtype) if isinstance(data, bytes) else None

    def write(self, key: FeatureKey, features: Features) -> None:
        with self._idle:
            room = self._pending_bytes + features.nbytes <= PENDING_BYTES
            self._pending_bytes += features.nbytes if room else 0
        if room:
            self._pending.put((key, features))
        else:
            self._observer.feature_store_failed(operation="drop")

    def flush(self) -> None:
        """Wait until everything handed in so far was written or given up."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending_bytes == 0)

    def close(self) -> None:
        self._pending.put(None)
        self._writer.join()
        self._client.close()

    def _unpack(self, name: str, data: bytes, shape: Shape, dtype: torch.dtype) -> Features | None:
        try:
            return unpack(name, data, shape=shape, dtype=dtype)
        except RefusedBytes as refused:
            self._observer.features_refused(reason=str(refused))
            return None

    def _write_pending(self) -> None:
        while (item := self._pending.get()) is not None:
            key, features = item
            try:
                self._write_one(key, features)
            except Exception:  # whatever failed, the job does not depend on it
                self._writes.trip()
                self._observer.feature_store_failed(operation="write")
            with self._idle:
                self._pending_bytes -= features.nbytes
                self._idle.notify_all()

    def _write_one(self, key: FeatureKey, features: Features) -> None:
        if self._writes.closed():
            self._client.set(key.name, pack(key.name, features), ex=self._ttl_s)


def connect(url: str) -> Redis:
    """A client that gives up soon and never retries: a miss is cheaper than waiting."""
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_S,
        socket_timeout=REPLY_S,
        retry=Retry(NoBackoff(), 0),
    )
