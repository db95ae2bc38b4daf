"""Labelled answers: found, counted, reviewed, and handed out again as a calibration set."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.orm import Session

from app.actor import actor
from app.db import Sessions, transaction
from app.errors import NotFound, RequestError
from app.ids import job_name, job_number
from app.labels import read_values, right_label
from app.pages import Page, page_of
from app.references import RefKind
from app.results import as_line
from app.store import audit, reviews, votes
from app.store import labels as store
from app.store.labels import GROUPS, Count, Cursor, Filters, LabelRow
from app.store.reviews import Correction, Picture, Review, Reviewable

MOST_PARTS = 3  # of what counts are grouped by
MOST_COUNTS = 10_000
PAGE_CORRECTIONS = 500
CONFIRM, OVERTURN = "confirm", "overturn"

log = structlog.get_logger()


@dataclass(frozen=True)
class ReviewWish:
    """What a reviewer says. Without a field, of the only one that the answer has."""

    verdict: str
    field: str | None = None
    label: Any = None
    has_label: bool = False
    note: str | None = None


class Answers:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def list(self, tenant_id: str, filters: Filters, *, limit: int, after: str | None) -> Page[LabelRow]:
        """Labels with their answers, the newest first, behind the entry `after`."""
        with transaction(self._sessions) as session:
            cursor = _cursor(session, tenant_id, after) if after else None
            rows = store.list_labels(session, tenant_id, filters, after=cursor, limit=limit + 1)
        return page_of(rows, limit)

    def count(self, tenant_id: str, filters: Filters, *, by: Sequence[str]) -> Sequence[Count]:
        """How many labels there are of each group. RequestError where there are too many groups."""
        with transaction(self._sessions) as session:
            counts = store.count_labels(session, tenant_id, filters, by=by, limit=MOST_COUNTS + 1)
        if len(counts) > MOST_COUNTS:
            raise RequestError(
                f"There are more than {MOST_COUNTS:,} groups. Filter more, or group by less.",
                param="group_by",
                code="report_too_large",
            )
        return counts

    def review(self, tenant_id: str, name: str, wish: ReviewWish) -> Review:
        """Confirm or overturn a field of an answer; said again, it changes nothing.

        `NotFound` for an answer without labels, RequestError for a field or a label that it cannot have.
        """
        job_id = job_number(name)
        with transaction(self._sessions) as session:
            answer = _held(session, tenant_id, job_id, name)
            review = _reviewed(job_id, answer, wish)
            is_new = reviews.put_review(session, tenant_id, review)
            if votes.put_vote(session, tenant_id, review) or is_new:
                details = {"field": review.field, "verdict": review.verdict}
                if review.verdict == OVERTURN:
                    details["label"] = review.label
                audit.note(session, actor(), "answer.reviewed", name, details, tenant_id=tenant_id)
            noted = reviews.read_review(session, job_id, review.field)
        return noted or review

    def drop_review(self, tenant_id: str, name: str, field: str | None) -> None:
        """Take a review back; `NotFound` where there is none."""
        job_id = job_number(name)
        with transaction(self._sessions) as session:
            chosen = _field(_held(session, tenant_id, job_id, name).fields, field)
            known = reviews.read_review(session, job_id, chosen)
            if known is None:
                raise _unreviewed(name, chosen)
            reviews.delete_review(session, job_id, chosen)
            votes.delete_votes(session, job_id, chosen, [known.key_id, actor().key_id])
            details = {"field": chosen}
            audit.note(session, actor(), "answer.review_deleted", name, details, tenant_id=tenant_id)

    def take_back(self, tenant_id: str, name: str, field: str | None) -> None:
        """Take back what the caller has said: what somebody else said last is the review again.

        `NotFound` where the caller has said nothing.
        """
        job_id, key_id = job_number(name), actor().key_id
        with transaction(self._sessions) as session:
            chosen = _field(_held(session, tenant_id, job_id, name).fields, field)
            if not votes.delete_votes(session, job_id, chosen, [key_id]):
                raise _unreviewed(name, chosen)
            known = reviews.read_review(session, job_id, chosen)
            if known is not None and known.key_id == key_id:
                reviews.delete_review(session, job_id, chosen)
                if (before := votes.read_vote(session, job_id, chosen, None)) is not None:
                    reviews.put_review(session, tenant_id, before)
            details = {"field": chosen}
            audit.note(session, actor(), "answer.review_deleted", name, details, tenant_id=tenant_id)

    def corrections(self, tenant_id: str, filters: Filters) -> Iterator[bytes]:
        """The reviewed answers as JSON lines, page by page."""
        after = (0, "")
        while True:
            with transaction(self._sessions) as session:
                page = reviews.read_corrections(
                    session, tenant_id, filters, after=after, limit=PAGE_CORRECTIONS
                )
                wanted = sorted({image_id for one in page for image_id in one.image_ids})
                pictures = reviews.read_pictures(session, wanted)
            if not page:
                return
            yield b"".join(as_line(correction_line(one, pictures)) for one in page)
            after = (page[-1].job_id, page[-1].field)


def read_groups(text: str) -> list[str]:
    """What to group by, in the order given."""
    given = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for part in given:
        if part not in GROUPS:
            raise RequestError(
                f"Nothing is grouped by {part[:40]!r}: name some of {', '.join(GROUPS)}, commas between.",
                param="group_by",
                code="invalid_group_by",
            )
    if len(given) > MOST_PARTS:
        raise RequestError(
            f"{len(given)} are too many to group by: name at most {MOST_PARTS}.",
            param="group_by",
            code="invalid_group_by",
        )
    return given


def entry_name(job_id: int, field: str, place: int) -> str:
    """The id of a label: that of its job, with the place and the field where it is not the only one."""
    return f"{job_name(job_id)}.{place}.{field}" if field or place else job_name(job_id)


def correction_line(one: Correction, pictures: Mapping[int, Picture]) -> dict[str, Any]:
    """A review as an example to learn from or to be measured by: what was asked, and what is right."""
    said = read_values(one.constraint, one.text).get(one.field)
    turns = one.prompt["turns"]
    named = [_named(pictures.get(image_id)) for image_id in one.image_ids]
    system = _texts(turns, "system")
    return {
        "custom_id": entry_name(one.job_id, one.field, 0),
        "image": named[0] if named else None,
        **({"images": named} if len(named) > 1 else {}),
        "question": asked(one.prompt),
        **({"system": system} if system else {}),
        **_form(one.constraint),
        **({"field": one.field} if one.field else {}),
        "label": said if one.verdict == CONFIRM else one.label,
        "model_answer": said,
        "source": _source(one, pictures),
    }


def asked(prompt: Mapping[str, Any]) -> str:
    """What was asked, word for word: of a conversation the last turn."""
    return _texts(prompt["turns"][-1:], "user")


def _cursor(session: Session, tenant_id: str, name: str) -> Cursor:
    job, _, rest = name.partition(".")
    place, _, field = rest.partition(".")
    found = None
    if not rest or (place.isascii() and place.isdigit() and len(place) < 5):
        with suppress(NotFound):  # of the job's number, which nobody has named
            found = store.read_cursor(session, tenant_id, job_number(job), field, int(place or 0))
    if found is None:
        raise NotFound(f"No answer has the id {name[:200]!r}.", param="after", code="answer_not_found")
    return found


def _held(session: Session, tenant_id: str, job_id: int, name: str) -> Reviewable:
    held = reviews.hold_answer(session, tenant_id, job_id)
    if held is None:
        raise NotFound(
            f"No answer of {name} has labels: only answers under a choice list or a JSON schema have, and "
            "none that was cut off.",
            param="job_id",
            code="answer_not_found",
        )
    return held


def _reviewed(job_id: int, answer: Reviewable, wish: ReviewWish) -> Review:
    field = _field(answer.fields, wish.field)
    if wish.verdict == CONFIRM and wish.has_label:
        message = "A confirmed answer is right as it is: leave the label out, or overturn it."
        raise RequestError(message, param="label", code="invalid_label")
    if wish.verdict == OVERTURN and not wish.has_label:
        message = "Say what is right: to overturn an answer needs a label."
        raise RequestError(message, param="label", code="missing_parameter")
    label = None
    if wish.verdict == OVERTURN:
        said = read_values(answer.constraint, answer.text).get(field)
        label = right_label(answer.constraint, field, wish.label, said)
    acting = actor()
    return Review(job_id, field, wish.verdict, label, wish.note, acting.key_id)


def _field(fields: Sequence[str], wanted: str | None) -> str:
    if wanted is None and len(fields) == 1:
        return fields[0]
    if wanted is not None and wanted in fields:
        return wanted
    if list(fields) == [""]:
        message = "The answer has no fields, it is a label as a whole: leave field out."
        raise RequestError(message, param="field", code="invalid_field")
    shown = ", ".join(map(repr, fields[:20]))
    said = (
        "The answer has several fields: name one of"
        if wanted is None
        else f"The answer has no field {wanted[:80]!r}, but"
    )
    raise RequestError(f"{said} {shown}.", param="field", code="invalid_field")


def _unreviewed(name: str, field: str) -> NotFound:
    message = f"The answer of {name} has no review{_of(field)}."
    return NotFound(message, param="job_id", code="review_not_found")


def _of(field: str) -> str:
    return f" of {field!r}" if field else ""


def _form(constraint: Mapping[str, Any]) -> dict[str, Any]:
    if "choice" in constraint:
        return {"choices": constraint["choice"]}
    return {"schema": json.loads(constraint["json_schema"])}


def _texts(turns: Sequence[Mapping[str, Any]], role: str) -> str:
    parts = [part for turn in turns if turn["role"] == role for part in turn["parts"]]
    return "\n".join(part["text"] for part in parts if "text" in part)


def _named(picture: Picture | None) -> str | None:
    """As a job may name the image again; a data URL's bytes have no name."""
    return picture.ref if picture is not None and picture.kind != RefKind.DATA else None


def _source(one: Correction, pictures: Mapping[int, Picture]) -> dict[str, Any]:
    found = [pictures.get(image_id) for image_id in one.image_ids]
    return {
        "job_id": job_name(one.job_id),
        "batch_id": one.batch_id,
        "custom_id": one.custom_id,
        "item": one.item,
        "question": one.question,
        "policy_version": one.policy_version,
        "model": one.model,
        "revision": one.revision,
        "answered_at": int(one.created_at.timestamp()),
        "verdict": one.verdict,
        "note": one.note,
        "reviewed_at": int(one.at.timestamp()),
        "content_hashes": [picture.content_hash if picture else None for picture in found],
    }
