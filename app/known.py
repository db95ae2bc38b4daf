"""What the answer cache knows of ready jobs: who is given an answer, who waits for one, who is sent. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from app.answer_keys import READ, SHARED, WRITE, answer_key
from app.states import Priority
from app.store.images import ImageRow
from app.store.plans import Candidate

RANKS = {priority: rank for rank, priority in enumerate(Priority)}


@dataclass(frozen=True)
class Sorted:
    """Ready jobs by what becomes of them."""

    known: Sequence[tuple[int, bytes, str]] = ()  # job, key, fingerprint: its answer is kept
    waiting: Sequence[tuple[int, bytes]] = ()  # somebody else is being asked the same
    asked: Sequence[Candidate] = ()
    keys: Mapping[int, bytes] = field(default_factory=dict)  # of those that are asked and may be kept


def find_keys(
    candidates: Sequence[Candidate], images: Mapping[int, ImageRow], sharing: Collection[str]
) -> dict[int, bytes]:
    """The keys of the jobs that use the cache, and whose images are all stored."""
    return {
        one.id: answer_key(
            scope=SHARED if one.tenant_id in sharing else one.tenant_id,
            model=one.models[-1],
            question=one.question_hash,
            content_hashes=[images[image_id].content_hash for image_id in one.image_ids],
        )
        for one in candidates
        if one.cache and one.question_hash and all(image_id in images for image_id in one.image_ids)
    }


def sort_out(
    candidates: Sequence[Candidate],
    keys: Mapping[int, bytes],
    kept: Mapping[bytes, str],
    asked: Mapping[bytes, Collection[Priority]],
) -> Sorted:
    """Give, let wait or send. `kept` has the fingerprints of kept answers, `asked` who asks already.

    Nobody waits for a job of a lower class, which may have no turn for long. A job that must travel alone was
    on board at a death: it waits for nobody either, as it would not be missed.
    """
    known: list[tuple[int, bytes, str]] = []
    waiting: list[tuple[int, bytes]] = []
    sent: list[Candidate] = []
    best = {key: min(RANKS[one] for one in classes) for key, classes in asked.items() if classes}
    for one in candidates:
        key = keys.get(one.id)
        rank = RANKS[one.lane.priority]
        if key is not None and one.cache & READ and key in kept:
            known.append((one.id, key, kept[key]))
        elif key is not None and one.cache & READ and not one.alone and best.get(key, rank + 1) <= rank:
            waiting.append((one.id, key))
        else:
            sent.append(one)
            if key is not None and one.cache & WRITE:
                best[key] = min(rank, best.get(key, rank))
    writers = {one.id: keys[one.id] for one in sent if one.id in keys and one.cache & WRITE}
    return Sorted(known, waiting, sent, writers)
