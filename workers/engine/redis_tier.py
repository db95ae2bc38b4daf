"""The feature cache's second tier: Redis or Valkey, which may be slow, full or gone unnoticed by a job."""

import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from workers.engine.admission import WANTED, Reuse, worth_sharing
from workers.engine.base import FeatureTier, Observer
from workers.engine.feature_bytes import RefusedBytes, pack, unpack
from workers.engine.feature_codec import Kept, Shape
from workers.engine.features import FeatureKey, Look
from workers.engine.redis_books import Books, Claim
from workers.engine.single_flight import Ask, Waits

CONNECT_S = 0.2
REPLY_S = 0.5  # per socket read; 32 MiB over 10 Gb/s take 0.03 s
PAUSE_S = 5.0  # nothing is asked for this long after a failure
# Per call to the socket: with the library's own 64 KiB an image of 32 MiB costs twice the CPU time.
READ_BYTES = 8 * 2**20
PENDING_BYTES = 256 * 2**20  # features that wait to be written; more are dropped
MOST_CLAIMS = 4096  # images that we said we would encode


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


@dataclass(frozen=True)
class _Write:
    """What the writer's thread is to do: keep features, or without them give up or drop what there is."""

    key: FeatureKey
    kept: Kept | None = None
    reuse: Reuse = WANTED
    drop: bool = False
    unless_there: bool = False

    @property
    def nbytes(self) -> int:
        return 0 if self.kept is None else self.kept.nbytes


class RedisTier:
    """Reads on the caller's thread, writes on one of its own; a full Redis still serves reads.

    A look-up that finds nothing claims the image: who claims it first encodes it, the others may wait.
    """

    def __init__(
        self,
        *,
        client: Redis,
        ttl_s: int,
        budget: int,
        observer: Observer,
        waits: Waits,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._client = client
        self._books = Books(client, ttl_s=ttl_s, budget=budget)
        self._observer = observer
        self._waits = waits
        self._reads = Breaker(pause_s=pause_s)
        self._writes = Breaker(pause_s=pause_s)
        self._claims: OrderedDict[str, Claim] = OrderedDict()
        self._pending: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._unwritten = 0
        self._pending_bytes = 0
        self._idle = threading.Condition()
        self._writer = threading.Thread(target=self._write_pending, name="feature-writer", daemon=True)
        self._writer.start()

    def read(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype, idle: Ask) -> Look:
        if (kept := self.peek(key, shape=shape, dtype=dtype)) is not None:
            return Look(kept)
        return self._join(key.name, partial(self.peek, key, shape=shape, dtype=dtype), idle)

    def peek(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype) -> Kept | None:
        """A look-up without a claim."""
        if not self._reads.closed():
            return None
        name = key.name
        try:
            data = self._books.read(name)
            return None if data is None else unpack(name, data, shape=shape, dtype=dtype, form=key.form)
        except (RedisError, OSError):
            self._reads.trip()
            self._observer.feature_store_failed(operation="read")
        except RefusedBytes as refused:
            self._observer.features_refused(reason=str(refused))
            self.drop(key)
        return None

    def write(self, key: FeatureKey, kept: Kept, reuse: Reuse = WANTED) -> None:
        self._put_if_room(_Write(key, kept, reuse))

    def share(self, key: FeatureKey, kept: Kept) -> None:
        self._put_if_room(_Write(key, kept, unless_there=True))

    def drop(self, key: FeatureKey) -> None:
        self._put(_Write(key, drop=True))

    def give_up(self, key: FeatureKey) -> None:
        self._put(_Write(key))

    def flush(self) -> None:
        """Wait until everything handed in so far was written or given up."""
        with self._idle:
            self._idle.wait_for(lambda: self._unwritten == 0)

    def close(self) -> None:
        self._pending.put(None)
        self._writer.join()
        self._client.close()

    def _join(self, name: str, get: Callable[[], Kept | None], idle: Ask) -> Look:
        """Become the one who encodes, or wait for whoever does; who died leaves its place after a while."""
        started, until = time.perf_counter(), self._waits.deadline()
        first = claim = self._claim(name)
        kept = None
        while claim is not None and not claim.mine and kept is None:
            if not claim.stored and not self._waits.wait(partial(self._locked, name), idle=idle, until=until):
                break
            kept = get()
            if claim.stored:  # and damaged, if it was not read
                break
            claim = self._claim(name) if kept is None else claim
        if first is None or first.mine or first.stored:
            return Look(kept, seen=first is not None and first.seen)
        seconds = time.perf_counter() - started
        self._observer.features_awaited(found=kept is not None, seconds=seconds)
        return Look(kept, seen=True, waited_s=seconds)

    def _claim(self, name: str) -> Claim | None:
        """None where Redis does not take writes now: we go on as if we were alone."""
        if not (self._reads.closed() and self._writes.closed()):
            return None
        try:
            claim = self._books.claim(name, secrets.token_hex(8))
        except (RedisError, OSError):
            self._writes.trip()
            self._observer.feature_store_failed(operation="claim")
            return None
        if claim.mine:
            with self._idle:
                self._claims[name] = claim
                while len(self._claims) > MOST_CLAIMS:
                    self._claims.popitem(last=False)
        return claim

    def _locked(self, name: str) -> bool:
        try:
            return self._books.locked(name)
        except (RedisError, OSError):
            self._reads.trip()
            return False

    def _put_if_room(self, write: _Write) -> None:
        with self._idle:
            room = self._pending_bytes + write.nbytes <= PENDING_BYTES
        if room:
            self._put(write)
        else:
            self._observer.feature_store_failed(operation="drop")
            self.give_up(write.key)

    def _put(self, write: _Write) -> None:
        with self._idle:
            self._unwritten += 1
            self._pending_bytes += write.nbytes
        self._pending.put(write)

    def _write_pending(self) -> None:
        while (write := self._pending.get()) is not None:
            try:
                if self._writes.closed():
                    self._write_one(write)
            except Exception:  # whatever failed, the job does not depend on it
                self._writes.trip()
                self._observer.feature_store_failed(operation="write")
            with self._idle:
                self._unwritten -= 1
                self._pending_bytes -= write.nbytes
                self._idle.notify_all()

    def _write_one(self, write: _Write) -> None:
        """Whatever is done, those who wait are told after it."""
        name = write.key.name
        with self._idle:
            claim = self._claims.pop(name, None)
        if write.drop:
            self._books.drop(name)
        if write.kept is not None and self._deserves(write, claim):
            gone = self._books.write(name, pack(name, write.kept))
            self._observer.features_stored(tier=FeatureTier.REDIS, size=write.kept.nbytes)
            self._observer.features_evicted(images=gone)
        if claim is not None:
            self._books.release(name, claim.token)

    def _deserves(self, write: _Write, claim: Claim | None) -> bool:
        name = write.key.name
        if write.unless_there:
            return not self._books.has(name)
        if worth_sharing(write.reuse, awaited=False):
            return True
        return claim is not None and worth_sharing(write.reuse, awaited=self._books.awaited(name))


def connect(url: str) -> Redis:
    """A client that gives up soon and never retries: a miss is cheaper than waiting."""
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_S,
        socket_timeout=REPLY_S,
        socket_read_size=READ_BYTES,
        retry=Retry(NoBackoff(), 0),
    )
