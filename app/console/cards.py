"""Jobs as cards: what was asked of which pictures, what was said, and what is known of it. Pure."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from app.answer_keys import last_words
from app.ids import job_name
from app.labels import spell
from app.store.answer_cache import CACHED, NEAR, NEAR_OF
from app.store.console_pictures import MOST_SHOWN, ImageRow, LabelRow
from app.store.console_results import CardRow

MOST_QUESTION = 200
MOST_VALUE = 40
MOST_LINKED = 40  # longer values are not worth a link each

LinkOf = Callable[[str], str]  # to a small picture, by its content hash


@dataclass(frozen=True)
class CardParts:
    """Rows as the store has them: jobs in order, and what belongs to them."""

    rows: Sequence[CardRow]
    labels: Sequence[LabelRow]
    images: Mapping[int, ImageRow]


@dataclass(frozen=True)
class Picture:
    """`link` is None where there is nothing to be seen."""

    content_hash: str | None
    link: str | None


@dataclass(frozen=True)
class Chip:
    """A label; `review` is none, confirmed or overturned, `right` what stands in its place."""

    field: str
    value: str
    query: str  # that finds all jobs with it; empty where it is too long
    review: str
    right: str | None = None


@dataclass(frozen=True)
class Card:
    """`marks` are words of the service for what is special about an answer."""

    id: str
    line: int
    custom_id: str | None
    state: str
    model: str
    question: str
    answer: str | None
    is_cut: bool
    error_code: str | None
    error_message: str | None
    confidence: float | None
    pictures: Sequence[Picture] = ()
    more_pictures: int = 0
    chips: Sequence[Chip] = ()
    marks: Sequence[str] = ()
    near_of: str | None = None

    @property
    def is_label(self) -> bool:
        """Whether its one label says all that the answer does."""
        return is_label(self.answer, self.chips)

    @property
    def seen(self) -> str | None:
        """The content hash of its first picture that can be looked at."""
        return next((one.content_hash for one in self.pictures if one.content_hash is not None), None)

    @property
    def review(self) -> str:
        """Of the card as a whole: overturned if any part of it is."""
        states = {chip.review for chip in self.chips}
        return next((one for one in ("overturned", "confirmed") if one in states), "none")


def cards(parts: CardParts, link_of: LinkOf, *, most_question: int = MOST_QUESTION) -> list[Card]:
    labels = chips(parts.labels)
    pictures = {number: _picture(row, link_of) for number, row in parts.images.items()}
    return [
        _card(row, question_of(row.prompt, most_question), labels.get(row.id, ()), pictures)
        for row in parts.rows
    ]


def chips(rows: Sequence[LabelRow]) -> Mapping[int, Sequence[Chip]]:
    """Labels by job."""
    found: dict[int, list[Chip]] = defaultdict(list)
    for row in rows:
        found[row.job_id].append(_chip(row))
    return found


def label_query(name: str, value: str) -> str:
    """A label as one value of a form: its field, and behind the first `=` what it says."""
    return f"{quote(name, safe='')}={value}"


def question_of(prompt: Any, most: int = MOST_QUESTION) -> str:
    """The last words that are asked; "" for what is no question, or too long to be read."""
    try:
        words = last_words(prompt)
    except (KeyError, TypeError, AttributeError):
        return ""
    return cut(words, most)


def is_label(answer: str | None, own: Sequence[Chip]) -> bool:
    """Whether an answer is one of a list of choices, bare or as JSON, and so is its only label."""
    is_whole = len(own) == 1 and not own[0].field
    return is_whole and answer is not None and answer.strip() in (own[0].value, f'"{own[0].value}"')


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def marks_of(notes: Sequence[str] | None, *, escalated: bool) -> tuple[list[str], str | None]:
    """What is special about an answer, and the content hash of the picture that was asked about instead."""
    near_of = next((note.removeprefix(NEAR_OF) for note in notes or () if note.startswith(NEAR_OF)), None)
    marks = [note for note in dict.fromkeys(notes or ()) if not note.startswith(NEAR_OF)]
    if near_of is not None and NEAR not in marks:
        marks.append(NEAR)
    if CACHED in marks:
        marks.insert(0, marks.pop(marks.index(CACHED)))
    return [*marks, *(["escalated"] if escalated else [])], near_of


def _card(row: CardRow, question: str, own: Sequence[Chip], pictures: Mapping[int, Picture]) -> Card:
    marks, near_of = marks_of(row.notes, escalated=row.escalated)
    shown = row.image_ids[:MOST_SHOWN]
    return Card(
        id=job_name(row.id),
        line=row.line,
        custom_id=row.custom_id,
        state=row.state,
        model=row.model,
        question=question,
        answer=row.text,
        is_cut=row.text is not None and (row.chars or 0) > len(row.text),
        error_code=row.error_code,
        error_message=row.error_message,
        confidence=row.confidence,
        pictures=[pictures.get(one, Picture(None, None)) for one in shown],
        more_pictures=len(row.image_ids) - len(shown),
        chips=own,
        marks=marks,
        near_of=near_of,
    )


def _picture(row: ImageRow, link_of: LinkOf) -> Picture:
    if row.state != "stored" or row.content_hash is None:
        return Picture(None, None)
    return Picture(row.content_hash, link_of(row.content_hash))


def _chip(row: LabelRow) -> Chip:
    review = {"confirm": "confirmed", "overturn": "overturned"}.get(row.verdict or "", "none")
    right = cut(_spelled(row.right), MOST_VALUE) if review == "overturned" else None
    query = label_query(row.field, row.value) if len(row.value) <= MOST_LINKED else ""
    return Chip(cut(row.field, MOST_VALUE), cut(row.value, MOST_VALUE), query, review, right)


def _spelled(value: Any) -> str:
    several: Sequence[Any] = value if isinstance(value, list) else [value]
    return ", ".join(spell(one) or "…" for one in several)
