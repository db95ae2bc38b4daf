"""What the answer cache knows of ready jobs: who is given an answer, who waits for one, who is sent. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.answer_keys import READ, SHARED, WRITE, answer_key, has_patience
from app.states import Priority
from app.store.answer_cache import Known
from app.store.images import ImageRow
from app.store.plans import Candidate

RANKS = {priority: rank for rank, priority in enumerate(Priority)}


@dataclass(frozen=True)
class Sight:
    """What is known of how a job's image looks, where others that look the same may stand in."""

    near: Sequence[tuple[bytes, str]] = ()  # the key of the same question about each, and its content hash
    unseen: bytes | None = None  # what to wait by until somebody has looked at it


@dataclass(frozen=True)
class Sorted:
    """Ready jobs by what becomes of them."""

    known: Sequence[Known] = ()
    waiting: Sequence[tuple[int, bytes]] = ()  # somebody else is being asked the same
    asked: Sequence[Candidate] = ()
    keys: Mapping[int, bytes] = field(default_factory=dict)  # of those that are asked and may be kept


NO_SIGHT = Sight()
NO_SIGHTS: Mapping[int, Sight] = MappingProxyType({})


def find_keys(
    candidates: Sequence[Candidate], images: Mapping[int, ImageRow], sharing: Collection[str]
) -> dict[int, bytes]:
    """The keys of the jobs that use the cache, and whose images are all stored."""
    return {
        one.id: key_about(one, [images[image_id].content_hash for image_id in one.image_ids], sharing)
        for one in candidates
        if one.cache and one.question_hash and all(image_id in images for image_id in one.image_ids)
    }


def key_about(one: Candidate, content_hashes: Sequence[str], sharing: Collection[str]) -> bytes:
    """The key of a job's question about these images."""
    assert one.question_hash is not None
    return answer_key(
        scope=SHARED if one.tenant_id in sharing else one.tenant_id,
        model=one.models[-1],
        question=one.question_hash,
        content_hashes=content_hashes,
    )


def sort_out(
    candidates: Sequence[Candidate],
    keys: Mapping[int, bytes],
    kept: Mapping[bytes, str],
    asked: Mapping[bytes, Collection[Priority]],
    sights: Mapping[int, Sight] = NO_SIGHTS,
) -> Sorted:
    """Give, let wait or send. `kept` has the fingerprints of kept answers, `asked` who asks already.

    Nobody waits for a job of a lower class, which may have no turn for long. A job that must travel alone was
    on board at a death: it waits for nobody either, as it would not be missed. Nor does one that has waited
    for nothing some times, or that stands between the two models of a cascade: others wait for it.
    """
    known: list[Known] = []
    waiting: list[tuple[int, bytes]] = []
    sent: list[Candidate] = []
    best = {key: min(RANKS[one] for one in classes) for key, classes in asked.items() if classes}
    for one in candidates:
        key = keys.get(one.id)
        rank = RANKS[one.lane.priority]
        takes = key if one.cache & READ else None
        if takes is not None and (found := _kept_of(one.id, takes, kept, sights)):
            known.append(found)
        elif (
            takes is not None
            and not (one.alone or one.escalated)
            and has_patience(one.cache)
            and (awaited := _awaited(one.id, takes, best, rank, sights)) is not None
        ):
            waiting.append((one.id, awaited))
        else:
            sent.append(one)
            if key is not None and one.cache & WRITE:
                best[key] = min(rank, best.get(key, rank))
    writers = {one.id: keys[one.id] for one in sent if one.id in keys and one.cache & WRITE}
    return Sorted(known, waiting, sent, writers)


def _kept_of(job_id: int, key: bytes, kept: Mapping[bytes, str], sights: Mapping[int, Sight]) -> Known | None:
    """The answer about the job's own image, else about the nearest one that looks the same."""
    if key in kept:
        return Known(job_id, key, kept[key])
    near = sights.get(job_id, NO_SIGHT).near
    return next((Known(job_id, other, kept[other], name) for other, name in near if other in kept), None)


def _awaited(
    job_id: int, key: bytes, best: Mapping[bytes, int], rank: int, sights: Mapping[int, Sight]
) -> bytes | None:
    """What the job is to wait by, if by anything."""
    sight = sights.get(job_id, NO_SIGHT)
    keys = [key, *(other for other, _ in sight.near)]
    return next((one for one in keys if best.get(one, rank + 1) <= rank), sight.unseen)
