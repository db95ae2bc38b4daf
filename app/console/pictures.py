"""An image with all that was asked about it: by question, the newest answer first. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.agreement import plain
from app.console.cards import Chip, chips, cut, is_label, marks_of, question_of
from app.console.formats import short
from app.ids import job_name
from app.store.console_pictures import AskedRow, LabelRow

MOST_NAME = 60


@dataclass(frozen=True)
class Reply:
    """What came of asking once. `differs`: from the answer before, in more than case and spaces."""

    id: str
    batch_id: str | None
    batch_name: str
    custom_id: str | None
    policy_version: str | None
    model: str
    revision: str | None
    state: str
    answer: str | None
    is_cut: bool
    error_code: str | None
    error_message: str | None
    confidence: float | None
    at: datetime
    chips: Sequence[Chip]
    marks: Sequence[str]
    near_of: str | None
    images: int
    differs: bool

    @property
    def is_label(self) -> bool:
        """Whether its one label says all that the answer does."""
        return is_label(self.answer, self.chips)


@dataclass(frozen=True)
class Question:
    text: str
    replies: Sequence[Reply]


def questions(rows: Sequence[AskedRow], labels: Sequence[LabelRow]) -> list[Question]:
    """By question, that first which was asked last; `rows` are the newest first."""
    own = chips(labels)
    grouped: dict[str, list[AskedRow]] = {}
    for row in rows:
        grouped.setdefault(question_of(row.prompt), []).append(row)
    return [
        Question(
            text, [_reply(row, own, before) for row, before in zip(several, _before(several), strict=True)]
        )
        for text, several in grouped.items()
    ]


def way_back(found: Sequence[Question], came_from: str) -> Reply | None:
    """The reply whose batch the viewer comes from; where it is not on the page, the newest one of a batch."""
    replies = [one for question in found for one in question.replies if one.batch_id]
    return next((one for one in replies if one.id == came_from), next(iter(replies), None))


def _before(rows: Sequence[AskedRow]) -> list[str | None]:
    """The answer that each was given after, None where there is none."""
    found: list[str | None] = []
    last: str | None = None
    for row in reversed(rows):
        found.append(last)
        last = row.text if row.text is not None else last
    return found[::-1]


def _reply(row: AskedRow, own: Mapping[int, Sequence[Chip]], before: str | None) -> Reply:
    marks, near_of = marks_of(row.notes, escalated=row.escalated)
    return Reply(
        id=job_name(row.id),
        batch_id=row.batch_id,
        batch_name=cut(row.batch_name or short(row.batch_id), MOST_NAME),
        custom_id=row.custom_id,
        policy_version=row.policy_version,
        model=row.model,
        revision=row.revision,
        state=row.state,
        answer=row.text,
        is_cut=row.text is not None and (row.chars or 0) > len(row.text),
        error_code=row.error_code,
        error_message=row.error_message,
        confidence=row.confidence,
        at=row.at,
        chips=own.get(row.id, ()),
        marks=marks,
        near_of=near_of,
        images=row.images,
        differs=None not in (before, row.text) and plain(before or "") != plain(row.text or ""),
    )
