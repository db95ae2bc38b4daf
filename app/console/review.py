"""The review queue as its pages show it: what is asked for, and an answer with its choices. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

from app.answers import asked
from app.ids import job_name
from app.labels import Choices, choices_of, read_values, spell
from app.reviewing import Opened, QueueWish
from app.store.labels import Filters

PATH = "/review"
# Of the labels that have a key.
MOST_KEYS = 9
SHARES = (100, 50, 20, 10, 5)
MOST_CHARS = 512
FILTERS = ("batch", "question", "label", "policy", "sweep", "below")


@dataclass(frozen=True)
class Option:
    """A label to choose; `given` is what a form sends for it, `key` the digit that chooses it."""

    given: str
    shown: str
    key: int | None
    is_said: bool


@dataclass(frozen=True)
class ReviewView:
    opened: Opened
    job: str
    asked: str
    said: Sequence[str]
    kind: Literal["one", "several", "text"]
    options: Sequence[Option]
    written: str  # what stands in the text field at first
    whole: str | None  # the answer, where it says more than this field

    @property
    def field(self) -> str:
        return self.opened.answer.field


def read_wish(given: Mapping[str, Any]) -> QueueWish:
    """What a query or a form asks for; what makes no sense is left out."""
    texts = {name: str(given.get(name) or "")[:MOST_CHARS].replace("\0", "") or None for name in FILTERS}
    share = str(given.get("share") or "")
    return QueueWish(
        filters=Filters(
            batch_id=texts["batch"],
            question=texts["question"],
            label=texts["label"],
            policy_version=texts["policy"],
            sweep=texts["sweep"],
            below=_share(texts["below"] or ""),
        ),
        mode="second" if given.get("mode") == "second" else "first",
        share=int(share) if share in map(str, SHARES) else 100,
    )


def query_of(wish: QueueWish) -> dict[str, str]:
    """The same as a query has it."""
    filters, is_second = wish.filters, wish.mode == "second"
    found = {
        "batch": filters.batch_id,
        "question": filters.question,
        "label": filters.label,
        "policy": filters.policy_version,
        "sweep": filters.sweep,
        "below": None if filters.below is None else f"{filters.below:g}",
        "mode": "second" if is_second else None,
        "share": str(wish.share) if is_second and wish.share != 100 else None,
    }
    return {name: text for name, text in found.items() if text}


def start_path(wish: QueueWish, **more: str) -> str:
    query = urlencode({**query_of(wish), **{name: text for name, text in more.items() if text}})
    return f"{PATH}?{query}" if query else PATH


def answer_path(job: str, field: str, wish: QueueWish, *, last: str = "") -> str:
    """The page of an answer; `last` is the one before, that can be undone."""
    query = {**query_of(wish), **({"field": field} if field else {}), **({"last": last} if last else {})}
    return f"{PATH}/{quote(job, safe='')}" + (f"?{urlencode(query)}" if query else "")


def mark(job: str, field: str) -> str:
    """A field of an answer in one word, for a form to carry."""
    return f"{job}:{field}"


def read_mark(text: str) -> tuple[str, str]:
    job, _, field = text.partition(":")
    return job, field


def review_view(opened: Opened) -> ReviewView:
    answer = opened.answer
    values = read_values(answer.constraint, answer.text)
    said = values.get(answer.field)
    choices = choices_of(answer.constraint, answer.field)
    return ReviewView(
        opened=opened,
        job=job_name(answer.job_id),
        asked=asked(answer.prompt),
        said=[_shown(one) for one in _several(said)] or ["[]"],
        kind="text" if not choices.values else "several" if choices.are_several else "one",
        options=_options(choices, _several(said)),
        written=json.dumps(said, ensure_ascii=False) if isinstance(said, list) else "",
        whole=answer.text if len(values) > 1 else None,
    )


def _options(choices: Choices, said: Sequence[Any]) -> list[Option]:
    spelled = [spell(one) for one in said]
    return [
        Option(
            json.dumps(value), _shown(value), place if place <= MOST_KEYS else None, spell(value) in spelled
        )
        for place, value in enumerate(choices.values, start=1)
    ]


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    return spell(value) or json.dumps(value, ensure_ascii=False)


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
