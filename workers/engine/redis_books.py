"""The books of the Redis tier: what it holds, up to how many bytes, who encodes what, and what was seen.

Each script is one step that nobody can come between. They ask the server for the time, so that workers'
clocks do not matter, and end in the same state when run twice. Values are written and read by plain commands
beside them: 32 MiB do not pass through Lua.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

ROOT = "vqueue:features"
INDEX = f"{ROOT}-index"  # sorted set of names by the time (ms) at which they leave: the next use later
SIZES = f"{ROOT}-sizes"  # hash of bytes by name, and their sum under `total`
SEEN = f"{ROOT}-seen"  # one bitmap per generation: a Bloom filter of what was wanted
LOCK = f"{ROOT}-lock"  # one hash per image that is being encoded
LOCK_MS = 10_000  # a dead owner holds up nobody for longer
SEEN_BITS = 2**23  # 1 MiB; for 500,000 images a generation 1 in 200 is taken for seen wrongly
SEEN_MARKS = 3

_COMMON = """
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
-- The sum first: where a full server refuses to write, nothing else has changed yet.
local function forget(name)
  local size = redis.call('HGET', KEYS[2], name)
  if size then
    redis.call('HINCRBY', KEYS[2], 'total', -size)
    redis.call('HDEL', KEYS[2], name)
  end
  redis.call('ZREM', KEYS[1], name)
end
"""

# A use: the name leaves later. What left without our doing is taken off the books.
_TOUCH = (
    _COMMON
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then forget(KEYS[3]) return 0 end
return redis.call('ZADD', KEYS[1], 'XX', now_ms() + ARGV[1] * 1000, KEYS[3])
"""
)

# After a write: book it, drop what has expired, and let the least recently used leave until all fits.
_SETTLE = (
    _COMMON
    + """
local now = now_ms()
forget(KEYS[3])
local size = redis.call('STRLEN', KEYS[3])
if size > 0 then
  redis.call('HINCRBY', KEYS[2], 'total', size)
  redis.call('HSET', KEYS[2], KEYS[3], size)
  redis.call('ZADD', KEYS[1], now + ARGV[1] * 1000, KEYS[3])
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1000)) do
  redis.call('UNLINK', name)
  forget(name)
end
local gone = 0
while tonumber(redis.call('HGET', KEYS[2], 'total') or 0) > tonumber(ARGV[2]) do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest then break end
  redis.call('UNLINK', oldest)
  forget(oldest)
  gone = gone + 1
end
return gone
"""
)

_DROP = _COMMON + "redis.call('UNLINK', KEYS[3]) forget(KEYS[3]) return 1"

# A miss: note the sighting, and become the one who encodes, or tell that one that somebody waits.
_CLAIM = """
local generation = math.floor(redis.call('TIME')[1] / ARGV[3])
local young, old = KEYS[2] .. ':' .. generation, KEYS[2] .. ':' .. (generation - 1)
local seen = 1
for mark = 4, #ARGV do
  local before = redis.call('SETBIT', young, ARGV[mark], 1)
  if before == 0 and redis.call('GETBIT', old, ARGV[mark]) == 0 then seen = 0 end
end
redis.call('EXPIRE', young, ARGV[3] * 2)
if redis.call('EXISTS', KEYS[3]) == 1 then return {2, seen} end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'token', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, seen}
end
redis.call('HSET', KEYS[1], 'awaited', 1)
return {0, seen}
"""

_RELEASE = (
    "if redis.call('HGET', KEYS[1], 'token') == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)


@dataclass(frozen=True)
class Claim:
    """`mine`: encode it, and release it under `token`. `stored`: it came meanwhile, read it. Else somebody
    encodes it. `seen`: it was wanted before."""

    token: str
    mine: bool
    stored: bool
    seen: bool


class Books:
    """Raises what the client raises."""

    def __init__(self, client: Redis, *, ttl_s: int, budget: int, lock_ms: int = LOCK_MS) -> None:
        self._client = client
        self._ttl_s = ttl_s
        self._budget = budget
        self._lock_ms = lock_ms

    def read(self, name: str) -> bytes | None:
        """One round trip; what is read stays for another `ttl_s`."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.getex(name, ex=self._ttl_s)
        self._eval(pipeline, _TOUCH, name, self._ttl_s)
        # A full server refuses the second: the order of leaving suffers, the reader does not.
        value, _ = pipeline.execute(raise_on_error=False)
        if isinstance(value, Exception):
            raise value
        return value

    def write(self, name: str, data: bytes) -> int:
        """How many others had to leave."""
        if len(data) > self._budget:
            return 0
        pipeline = self._client.pipeline(transaction=False)
        pipeline.set(name, data, ex=self._ttl_s)
        self._eval(pipeline, _SETTLE, name, self._ttl_s, self._budget)
        _, gone = pipeline.execute()
        return int(gone)

    def has(self, name: str) -> bool:
        return bool(self._client.exists(name))

    def drop(self, name: str) -> None:
        self._eval(self._client, _DROP, name)

    def claim(self, name: str, token: str) -> Claim:
        arguments = [token, self._lock_ms, self._ttl_s, *_marks(name)]
        state, seen = self._run(_CLAIM, [_lock(name), SEEN, name], arguments)
        return Claim(token, mine=state == 1, stored=state == 2, seen=bool(seen))

    def awaited(self, name: str) -> bool:
        """Whether another worker has asked for what we encode."""
        return bool(self._client.hexists(_lock(name), "awaited"))

    def locked(self, name: str) -> bool:
        return bool(self._client.exists(_lock(name)))

    def release(self, name: str, token: str) -> None:
        self._run(_RELEASE, [_lock(name)], [token])

    def _eval(self, client: Any, script: str, name: str, *arguments: object) -> Any:
        """`client` may be a pipeline. EVAL with its text: a server that lost its scripts knows it anyway."""
        return client.eval(script, 3, INDEX, SIZES, name, *arguments)

    def _run(self, script: str, keys: Sequence[str], arguments: Sequence[object]) -> Any:
        client: Any = self._client  # its stubs take texts only
        return client.eval(script, len(keys), *keys, *arguments)


def _lock(name: str) -> str:
    return f"{LOCK}:{_digest(name).hex()[:32]}"


def _marks(name: str) -> list[int]:
    """The bits that stand for a name."""
    digest = _digest(name)
    return [int.from_bytes(digest[at * 4 : at * 4 + 4], "big") % SEEN_BITS for at in range(SEEN_MARKS)]


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
