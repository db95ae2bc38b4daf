"""Items of two batches as the page shows them: what is shared once, what differs side by side. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.console.cards import Card
from app.ids import job_name
from app.store.console_compare import DIFFERING, MISSING, NEITHER, SAME, Pair

# What the form offers, each with the kinds that it means. Differences come first.
SHOWN: Mapping[str, Sequence[str]] = {
    "differences": (DIFFERING, "only_a", "only_b"),
    "differing": (DIFFERING,),
    "unanswered": ("only_a", "only_b", NEITHER),
    "same": (SAME,),
    "missing": (MISSING,),
}
FIRST = "differences"


@dataclass(frozen=True)
class PairView:
    """`differing` names the fields whose labels are not the same in both."""

    kind: str
    a: Card
    b: Card | None
    differing: frozenset[str]


def pair_views(pairs: Sequence[Pair], cards: Sequence[Card]) -> list[PairView]:
    """Pairs whose jobs are still there, in their order."""
    by_id = {card.id: card for card in cards}
    return [
        PairView(pair.kind, card, other, _differing(card, other))
        for pair in pairs
        if (card := by_id.get(job_name(pair.a))) is not None
        for other in [by_id.get(job_name(pair.b)) if pair.b is not None else None]
    ]


def kinds_of(shown: str) -> Sequence[str]:
    return SHOWN.get(shown, SHOWN[FIRST])


def _differing(a: Card, b: Card | None) -> frozenset[str]:
    if b is None:
        return frozenset()
    one, other = ({(chip.field, chip.value) for chip in card.chips} for card in (a, b))
    return frozenset(name for name, _ in one ^ other)
