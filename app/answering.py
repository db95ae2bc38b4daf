"""Gives ready jobs the answers that are kept, and lets them wait for those that are on their way."""

from collections.abc import Mapping, Sequence

import structlog
from sqlalchemy.orm import Session

from app import telemetry
from app.alike import look_around
from app.known import NO_SIGHT, Sorted, find_keys, sort_out
from app.labels import read_labels
from app.store import answer_cache as store
from app.store.answer_cache import Given
from app.store.images import ImageRow
from app.store.labels import note_labels
from app.store.plans import Candidate

NOTHING = Given(frozenset(), 0.0)

log = structlog.get_logger()


class KnownAnswers:
    """`shared` are the names or ids of the tenants that share their caches."""

    def __init__(self, shared: Sequence[str]) -> None:
        self._shared = shared

    def sort_out(
        self, session: Session, candidates: Sequence[Candidate], images: Mapping[int, ImageRow]
    ) -> Sorted:
        """Look up what is known of ready jobs, which stay locked until the transaction ends."""
        if not any(one.cache for one in candidates):
            return Sorted(asked=candidates)
        sharing = store.find_sharing(session, self._shared) if self._shared else ()
        keys = find_keys(candidates, images, sharing)
        engines = store.read_engines(session)
        sights = look_around(session, candidates, images, keys, sharing)
        wanted = {
            one.id: [keys[one.id], *(key for key, _ in sights.get(one.id, NO_SIGHT).near)]
            for one in candidates
            if one.id in keys
        }
        prints = [
            (key, engines[model])
            for one in candidates
            for key in wanted.get(one.id, ())
            for model in one.models
            if model in engines
        ]
        # In this order: who has answered between the two has kept the answer before it is looked for.
        asked = store.find_asked(session, sorted({key for found in wanted.values() for key in found}))
        kept = store.find_kept(session, prints)
        return sort_out(candidates, keys, kept, asked, sights)

    def settle(self, session: Session, found: Sorted) -> Given:
        """End the jobs whose answers are kept, and put those aside that wait; what was given."""
        if found.waiting:
            store.await_answers(session, found.waiting)
        if not found.known:
            return NOTHING
        given = store.give_answers(session, found.known)
        said = given.constrained.items()
        note_labels(session, {job_id: read_labels(constraint, text) for job_id, (constraint, text) in said})
        return given


def tell_given(given: Given, *, waiting: int) -> None:
    """Once it is committed."""
    telemetry.ANSWERS_CACHED.inc(len(given.job_ids))
    telemetry.ANSWERS_NEAR.inc(given.near)
    telemetry.MODEL_SECONDS_SAVED.inc(given.saved_s)
    telemetry.JOBS_ENDED.labels("completed", "").inc(len(given.job_ids))
    if given.job_ids or waiting:
        log.info("answers_given", jobs=len(given.job_ids), waiting=waiting, saved_s=round(given.saved_s, 3))
