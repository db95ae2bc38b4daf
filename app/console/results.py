"""Results for the console's pages: found page by page, and never by reading more than a page may cost."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from app.console.cards import CardParts
from app.db import Sessions, transaction
from app.errors import NotFound
from app.ids import job_number
from app.store import console_pictures as pictures
from app.store import console_results as store
from app.store.console_pictures import AskedRow, ImageFacts, LabelRow, NearRow
from app.store.console_results import Filters, LabelCount, Piece

PAGE = 60
# Candidates looked at by one statement where each has to be looked at, and by all those of a request: about
# 100 ms on one core for texts of a few hundred characters.
PIECES = (500, 2_000, 5_000)
MOST_LOOKED = 20_000
MOST_S = 0.4  # on a machine that is busy or has slow disks
MOST_CHARS = 400
MOST_PROMPT_BYTES = 16_384
MOST_CHARS_ALONE, MOST_BYTES_ALONE = 20_000, 2**20  # of a job that has a page to itself
PAGE_OF_IMAGE = 100
MOST_CHARS_OF_IMAGE = 1_000
MOST_NEAR = 24
MOST_VALUES = 20  # of a field, told with their counts
# Counts of an ended batch do not change; those of a running one are counted again, but not all the time.
KEPT_ENDED_S, KEPT_OPEN_S = 600, 5
SHORTEST_REST = 20  # times what the counting took
MOST_KEPT = 200


@dataclass(frozen=True)
class Found:
    """Jobs of a page in the order of the batch; `goes_on` tells whether there may be more in its direction.

    `looked` counts the candidates that were looked at, `line` tells how far where that was not to the end,
    and `resume` is the job to go on behind, or before.
    """

    ids: Sequence[int]
    goes_on: bool
    looked: int
    line: int | None = None
    resume: int | None = None


@dataclass(frozen=True)
class ImageParts:
    """Rows about an image as the store has them; `near` are the others of its cluster."""

    facts: ImageFacts
    asked: Sequence[AskedRow]
    labels: Sequence[LabelRow]
    near: Sequence[NearRow]
    has_more: bool


NOTHING = Found([], goes_on=False, looked=0)


class Results:
    def __init__(self, *, sessions: Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._lock = Lock()
        self._counts: OrderedDict[str, tuple[float, Sequence[LabelCount]]] = OrderedDict()

    def find(
        self, tenant_id: str, batch_id: str, filters: Filters, *, at: int | None, backwards: bool = False
    ) -> Found:
        """The next page of the jobs that fit behind job `at`, or the one before it.

        The batch is known to be the tenant's.
        """
        until = self._clock() + MOST_S
        found, looked, here = Found([], goes_on=False, looked=0), 0, at
        with transaction(self._sessions) as session:
            span = store.read_span(session, batch_id)
            if span is None:
                return NOTHING
            here = here if here is not None else span.first - 1
            for size in _sizes(filters):
                piece = store.find_jobs(
                    session, tenant_id, batch_id, filters, span=span, at=here, backwards=backwards, piece=size
                )
                found = _more(found, piece, size)
                looked = found.looked
                if len(found.ids) > PAGE or not found.goes_on:
                    break
                if looked >= MOST_LOOKED or self._clock() > until or piece.last is None:
                    break
                here = piece.last
        return _page(found, backwards=backwards)

    def cards(
        self,
        tenant_id: str,
        job_ids: Sequence[int],
        *,
        most_chars: int = MOST_CHARS,
        most_bytes: int = MOST_PROMPT_BYTES,
    ) -> CardParts:
        """What is shown of these jobs of the tenant, each kind of thing by one statement."""
        with transaction(self._sessions) as session:
            rows = store.read_cards(session, job_ids, most_chars=most_chars, most_prompt_bytes=most_bytes)
            labels = pictures.read_labels(session, job_ids)
            shown = sorted({image for row in rows for image in row.image_ids[: pictures.MOST_SHOWN]})
            images = pictures.read_images(session, tenant_id, shown)
        return CardParts(rows, labels, images)

    def job(self, tenant_id: str, batch_id: str, name: str) -> CardParts:
        """One job of a batch with all that it says; `NotFound` for one of another batch."""
        job_id = job_number(name)
        parts = self.cards(tenant_id, [job_id], most_chars=MOST_CHARS_ALONE, most_bytes=MOST_BYTES_ALONE)
        if not parts.rows or parts.rows[0].batch_id != batch_id:
            raise NotFound(f"The batch has no job {name!r}.", param="job_id", code="job_not_found")
        return parts

    def image(self, tenant_id: str, content_hash: str, *, before: str | None) -> ImageParts:
        """An image of the tenant, what was asked about it, and what looks like it; `NotFound` without it."""
        at = job_number(before) if before else None
        with transaction(self._sessions) as session:
            facts = pictures.read_image(session, tenant_id, content_hash)
            if facts is None:
                message = f"No image has the content hash '{content_hash[:100]}'."
                raise NotFound(message, param="content_hash", code="image_not_found")
            asked = pictures.list_asked(
                session,
                tenant_id,
                facts.ids,
                before=at,
                limit=PAGE_OF_IMAGE + 1,
                most_chars=MOST_CHARS_OF_IMAGE,
                most_prompt_bytes=MOST_PROMPT_BYTES,
            )
            shown = asked[:PAGE_OF_IMAGE]
            labels = pictures.read_labels(session, [row.id for row in shown])
            near = pictures.list_near(session, tenant_id, content_hash, limit=MOST_NEAR)
        return ImageParts(facts, shown, labels, near, has_more=len(asked) > PAGE_OF_IMAGE)

    def counts(self, batch_id: str, *, is_open: bool) -> Sequence[LabelCount]:
        """How many jobs have which label, as of a while ago."""
        with self._lock:
            kept = self._counts.get(batch_id)
        if kept is not None and kept[0] > self._clock():
            return kept[1]
        began = self._clock()
        with transaction(self._sessions) as session:
            counted = store.count_values(session, batch_id, most=MOST_VALUES)
        took = self._clock() - began
        until = began + max(KEPT_OPEN_S if is_open else KEPT_ENDED_S, SHORTEST_REST * took)
        with self._lock:
            self._counts[batch_id] = (until, counted)
            self._counts.move_to_end(batch_id)
            while len(self._counts) > MOST_KEPT:
                self._counts.popitem(last=False)
        return counted


def _sizes(filters: Filters) -> Sequence[int]:
    """How many candidates to look at, statement by statement."""
    if store.is_exact(filters):
        return [PAGE + 1]
    return [*PIECES, *[PIECES[-1]] * (MOST_LOOKED // PIECES[-1])]


def _more(found: Found, piece: Piece, size: int) -> Found:
    return replace(
        found,
        ids=[*found.ids, *piece.found],
        looked=found.looked + piece.scanned,
        goes_on=piece.scanned >= size,
        line=piece.line,
        resume=piece.last,
    )


def _page(found: Found, *, backwards: bool) -> Found:
    """A page of what was found; what is behind it will be found again."""
    if len(found.ids) > PAGE:
        found = replace(found, ids=found.ids[:PAGE], goes_on=True, line=None, resume=found.ids[PAGE - 1])
    elif not found.goes_on:
        found = replace(found, line=None, resume=None)
    return replace(found, ids=found.ids[::-1]) if backwards else found
