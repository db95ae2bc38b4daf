"""Looks around for images that look like those of ready jobs, whose answers may stand in for theirs."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy.orm import Session

from app.answer_keys import READ, look_key, near_distance
from app.known import Sight, key_about
from app.store import looks
from app.store.images import ImageRow
from app.store.looks import Content
from app.store.plans import Candidate


def look_around(
    session: Session,
    candidates: Sequence[Candidate],
    images: Mapping[int, ImageRow],
    keys: Mapping[int, bytes],
    sharing: Collection[str],
) -> dict[int, Sight]:
    """What may stand in for the image of each job that wants it so, and has just one.

    Images that nobody has looked at are wanted from now on, and their jobs wait. Only images of the job's
    own tenant stand in.
    """
    wishes = {
        one.id: (one, wish, (one.tenant_id, images[one.image_ids[0]].content_hash))
        for one in candidates
        if one.id in keys
        and one.cache & READ
        and len(one.image_ids) == 1
        and (wish := near_distance(one.cache)) is not None
    }
    if not wishes:
        return {}
    within: dict[Content, int] = {}
    for _, wish, content in wishes.values():
        within[content] = max(wish, within.get(content, 0))
    looks.want(session, within)
    unseen = looks.find_unseen(session, within)
    found = looks.find_near(session, {one: wish for one, wish in within.items() if one not in unseen})
    return {
        job_id: Sight(
            near=[
                (key_about(one, [other.content_hash], sharing), other.content_hash)
                for other in found.get(content, ())
                if other.distance <= wish
            ],
            unseen=look_key(*content) if content in unseen else None,
        )
        for job_id, (one, wish, content) in wishes.items()
    }
