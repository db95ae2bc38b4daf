"""What an answer is kept by: a hash of all that it depends on, and which answers may be kept. Pure."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256

from app.checks import Json

# Written into every hash: a change of how they are made forgets what was kept.
VERSION = b"1"

# The bits of jobs.cache: what it does with answers, how near a picture must be that stands in (four bits),
# and how often it has waited for an answer that was of no use to it.
READ, WRITE = 1, 2
NEAR_SHIFT = 2
VAIN = 1 << 6
MOST_VAIN = 3  # where questions fail, or an engine answers whose answers are not given: else one by one
SHARED = "shared"  # the scope of tenants that agreed to share; tenants' own ids begin with `tenant_`

_JSON = json.JSONEncoder(separators=(",", ":"), sort_keys=True)


class CacheMode(StrEnum):
    """How a batch or a job uses the answer cache."""

    ON = "on"  # take answers from it, and add those that are new
    OFF = "off"
    READ = "read"  # take answers, add none
    WRITE = "write"  # ask everything anew, and keep those answers instead of the old ones

    @property
    def bits(self) -> int:
        return {CacheMode.ON: READ | WRITE, CacheMode.OFF: 0, CacheMode.READ: READ}.get(self, WRITE)


def cache_bits(mode: CacheMode, near_distance: int | None) -> int:
    """As jobs keep it: how they use the cache, and which near duplicates' answers they take, if any."""
    if near_distance is None or not mode.bits & READ:
        return mode.bits
    return mode.bits | (near_distance + 1) << NEAR_SHIFT


def near_distance(bits: int) -> int | None:
    """In how many bits of its hash a picture may differ whose answer stands in; None where none may."""
    wish = bits % VAIN >> NEAR_SHIFT
    return wish - 1 if wish else None


def has_patience(bits: int) -> bool:
    """Whether a job is to wait for an answer once more, and not for one that is of no use again."""
    return bits < MOST_VAIN * VAIN


def is_repeatable(params: Mapping[str, Json]) -> bool:
    """Whether a question asked again would get the same answer: greedy decoding only, as sampling draws.

    A seed does not make it so: what is drawn may depend on the company of a request.
    """
    return not params.get("temperature")


def canonical(params: Mapping[str, Json]) -> bytes:
    """Parameters as they are hashed: in whatever order a client names them."""
    return _JSON.encode(params).encode()


def question_hash(prompt: str, params: bytes) -> bytes:
    """Of all that a job asks but for its images: 32 bytes.

    `prompt` is JSON as it is stored, `params` comes from `canonical`.
    """
    return _digest(prompt.encode("utf-8", "surrogatepass"), params)


def answer_key(*, scope: str, model: str, question: bytes, content_hashes: Sequence[str]) -> bytes:
    """Of a question (its `question_hash`) about these images in their order: 32 bytes.

    `scope` is the tenant's id, or SHARED.
    """
    return _digest(scope.encode(), model.encode(), question, *(name.encode() for name in content_hashes))


def look_key(tenant_id: str, content_hash: str) -> bytes:
    """What jobs wait by until it is known how an image looks: 32 bytes, and no answer's key."""
    return _digest(b"look", tenant_id.encode(), content_hash.encode())


def question_id(text: str) -> bytes:
    """Of a question's words alone, whatever stands before them: what answers are forgotten by."""
    return _digest(text.encode("utf-8", "surrogatepass"))


def last_words(prompt: Mapping[str, Json]) -> str:
    """The last text that is asked, "" where there is none."""
    texts = [part["text"] for turn in prompt["turns"] for part in turn["parts"] if "text" in part]
    return texts[-1] if texts else ""


def fingerprint(parts: Mapping[str, object]) -> str:
    """A short name for an engine by all that its answers depend on."""
    return sha256(_JSON.encode(parts).encode()).hexdigest()[:32]


def _digest(*parts: bytes) -> bytes:
    """Each part with its length, so that none runs into the next."""
    return sha256(
        VERSION + b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "big"), part)])
    ).digest()
