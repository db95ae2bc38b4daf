"""What a page of results is asked for by its form, and what the form then offers. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlencode

from app.console.cards import cut, label_query
from app.store.console_results import Filters, LabelCount

OUTCOMES = ("answered", "failed", "open")
REVIEWS = ("none", "confirmed", "overturned")
CODE = "code:"  # before an error code, among the outcomes
MOST_WORDS = 200
MOST_SHOWN = 60
MOST_LABEL_CHARS = 1_000


@dataclass(frozen=True)
class Asked:
    """A form as it was filled in: texts, "" for what was left out."""

    label: str = ""
    field: str = ""
    outcome: str = ""
    below: str = ""
    review: str = ""
    text: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        given = {name: query.get(name, "").replace("\0", "") for name in cls.__dataclass_fields__}
        return cls(
            **{
                **{name: value[:MOST_LABEL_CHARS] for name, value in given.items()},
                "text": given["text"][:MOST_WORDS].strip(),
            }
        )

    def filters(self) -> Filters:
        """What makes no sense is left out, as a form cannot ask for it."""
        name, is_label, value = self.label.partition("=")
        return Filters(
            outcome=self.outcome if self.outcome in OUTCOMES else None,
            code=self.outcome.removeprefix(CODE) if self.outcome.startswith(CODE) else None,
            label=(unquote(name).replace("\0", ""), value) if is_label else None,
            field=self.field.removeprefix("=") if self.field else None,
            below=_share(self.below),
            review=self.review if self.review in REVIEWS else None,
            text=self.text or None,
        )

    def query(self, **further: str) -> str:
        """Of a link that asks for the same, with something beside it."""
        return urlencode({name: value for name, value in {**vars(self), **further}.items() if value})

    @property
    def is_any(self) -> bool:
        return self.filters() == Filters()


@dataclass(frozen=True)
class Option:
    """A choice of a form; `jobs` is how many there are of it, where that is known."""

    value: str
    text: str
    jobs: int | None
    is_chosen: bool


@dataclass(frozen=True)
class FieldOptions:
    """The values of a field. `value` is how the form asks for the field itself."""

    field: str
    value: str
    is_chosen: bool
    labels: Sequence[Option]


def field_options(asked: Asked, counts: Sequence[LabelCount]) -> list[FieldOptions]:
    """Each field with its commonest values; what is chosen is among them, however rare."""
    chosen = asked.filters().label
    names = dict.fromkeys(count.field for count in counts)
    if chosen is not None:
        names.setdefault(chosen[0])
    return [
        FieldOptions(
            field=name,
            value=f"={name}",
            is_chosen=asked.field == f"={name}",
            labels=_labels(asked, name, [count for count in counts if count.field == name]),
        )
        for name in names
    ]


def _labels(asked: Asked, name: str, counts: Sequence[LabelCount]) -> list[Option]:
    options = [
        Option(query, cut(count.value, MOST_SHOWN), count.jobs, query == asked.label)
        for count in counts
        if (query := label_query(name, count.value))
    ]
    chosen = asked.filters().label
    if chosen is not None and chosen[0] == name and not any(one.is_chosen for one in options):
        options.append(Option(asked.label, cut(chosen[1], MOST_SHOWN), None, True))
    return options


def _share(text: str) -> float | None:
    """From `0.8`, or `80 %`, in either spelling of decimals."""
    plain = text.strip().replace(",", ".")
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
