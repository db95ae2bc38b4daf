"""The queue of answers to review, one at a time, and how far reviewers agree."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Literal

from sqlalchemy.orm import Session

from app.answers import MOST_COUNTS
from app.db import Sessions, transaction
from app.errors import NotFound, RequestError
from app.ids import job_number
from app.opinions import Agreement, agreements
from app.store import review_queue as store
from app.store import reviews, votes
from app.store.labels import Filters
from app.store.review_queue import QueuedAnswer, Searcher, Spot
from app.store.reviews import Picture, Review
from app.store.votes import Difference

# For which nobody else is given an answer; its page renews it while somebody looks.
CLAIM_S = 120.0
# Looked at for one that nobody has just taken.
TRIES = 8
MOST_COUNTED = 1_000
MOST_NAMES = 100
MOST_DIFFERENCES = 50


@dataclass(frozen=True)
class QueueWish:
    """Which answers. For a second opinion, a share in percent of what somebody else has reviewed."""

    filters: Filters = field(default_factory=Filters)
    mode: Literal["first", "second"] = "first"
    share: int = 100


@dataclass(frozen=True)
class Opened:
    """An answer as a reviewer sees it, with what is known of its review."""

    answer: QueuedAnswer
    pictures: Sequence[Picture | None]
    own: Review | None
    review: Review | None
    is_held_by_others: bool


@dataclass(frozen=True)
class Waiting:
    """How many answers wait, counted up to MOST_COUNTED."""

    unsure: int
    unknown: int
    reviewed: int


@dataclass(frozen=True)
class Names:
    questions: Sequence[str]
    labels: Sequence[str]


class ReviewQueue:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def next(self, who: Searcher, wish: QueueWish, *, after: tuple[str, str] | None) -> Spot | None:
        """Claim the next answer behind `after` (a job and a field); None at the end of the queue."""
        with transaction(self._sessions) as session:
            spot = None
            if after is not None:
                spot = store.read_spot(session, who.tenant_id, job_number(after[0]), after[1])
            for found in _found(session, who, wish, after=spot, limit=TRIES):
                if store.claim(session, who, found, for_s=CLAIM_S):
                    return found
            return None

    def waiting(self, who: Searcher, wish: QueueWish) -> Waiting:
        """How many there are; of the mode's only."""
        with transaction(self._sessions) as session:
            if wish.mode == "second":
                found = _found(session, who, wish, after=None, limit=MOST_COUNTED)
                return Waiting(0, 0, len(found))
            known, unknown = (
                len(find(session, who, wish.filters, after=None, limit=MOST_COUNTED))
                for find in (store.find_unsure, store.find_unknown)
            )
            return Waiting(known, unknown if wish.filters.below is None else 0, 0)

    def open(self, who: Searcher, name: str, field: str | None) -> Opened:
        """An answer for a reviewer; `NotFound` where there is none with labels."""
        job_id = job_number(name)
        with transaction(self._sessions) as session:
            answer = store.read_queued(session, who.tenant_id, job_id, field)
            if answer is None:
                raise NotFound(
                    f"There is no such labelled answer of {name}.", param="job_id", code="answer_not_found"
                )
            known = reviews.read_pictures(session, answer.image_ids)
            return Opened(
                answer=answer,
                pictures=[known.get(image_id) for image_id in answer.image_ids],
                own=votes.read_vote(session, job_id, answer.field, who.key_id),
                review=reviews.read_review(session, job_id, answer.field),
                is_held_by_others=store.is_held_by_others(session, who.holder, job_id, answer.field),
            )

    def hold(self, who: Searcher, name: str, field: str) -> bool:
        """Keep an answer while one looks at it; False where somebody else has it."""
        job_id = job_number(name)
        with transaction(self._sessions) as session:
            if store.read_spot(session, who.tenant_id, job_id, field) is None:
                return False
            return store.hold(session, who.holder, job_id, field, for_s=CLAIM_S)

    def release(self, who: Searcher, name: str, field: str) -> None:
        """Let others have it."""
        with transaction(self._sessions) as session:
            store.release(session, who.holder, job_number(name), field)

    def names(self, tenant_id: str, question: str | None) -> Names:
        """What there is to filter by: questions, and the labels of the one that is asked for."""
        with transaction(self._sessions) as session:
            return Names(
                store.list_questions(session, tenant_id, limit=MOST_NAMES),
                store.list_values(session, tenant_id, question, limit=MOST_NAMES) if question else (),
            )

    def agreement(self, tenant_id: str, filters: Filters) -> list[Agreement]:
        """How often two people said the same, by question and pair. RequestError where that is too much."""
        with transaction(self._sessions) as session:
            counts = votes.count_pairs(session, tenant_id, filters, limit=MOST_COUNTS + 1)
        if len(counts) > MOST_COUNTS:
            raise RequestError(
                f"There are more than {MOST_COUNTS:,} pairs of labels. Filter more.",
                param="question",
                code="report_too_large",
            )
        return agreements(astuple(one) for one in counts)

    def differences(self, tenant_id: str, filters: Filters) -> list[Difference]:
        """What two people do not agree on, the newest first."""
        with transaction(self._sessions) as session:
            return votes.list_differences(session, tenant_id, filters, limit=MOST_DIFFERENCES)


def _found(session: Session, who: Searcher, wish: QueueWish, *, after: Spot | None, limit: int) -> list[Spot]:
    if wish.mode == "second":
        return store.find_reviewed(session, who, wish.filters, share=wish.share, after=after, limit=limit)
    found: list[Spot] = []
    if after is None or after.confidence is not None:
        found = store.find_unsure(session, who, wish.filters, after=after, limit=limit)
        after = None
    if len(found) < limit and wish.filters.below is None:
        found += store.find_unknown(session, who, wish.filters, after=after, limit=limit - len(found))
    return found
