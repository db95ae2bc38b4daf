"""How often two people say the same of the same answers. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Of one pair and question: which of the two said what, and how many answers they said it of.
Said = Sequence[tuple[str, str, int]]


@dataclass(frozen=True)
class Agreement:
    """Of the answers to a question that both people have reviewed."""

    question: str | None
    field: str
    one: str
    other: str
    answers: int
    agreed: int
    kappa: float | None  # Cohen's; None where chance alone would have them agree always

    @property
    def rate(self) -> float:
        return self.agreed / self.answers


def agreements(counts: Iterable[tuple[str | None, str, str, str, str, str, int]]) -> list[Agreement]:
    """Of counts by question, field, one person, another, and what either says: a line for each pair."""
    tables: dict[tuple[str | None, str, str, str], list[tuple[str, str, int]]] = defaultdict(list)
    for question, field, one, other, one_says, other_says, answers in counts:
        tables[question, field, one, other].append((one_says, other_says, answers))
    return [
        Agreement(*pair, sum(count for *_, count in said), agreed(said), kappa(said))
        for pair, said in tables.items()
    ]


def agreed(said: Said) -> int:
    return sum(count for one, other, count in said if one == other)


def kappa(said: Said) -> float | None:
    """How far above chance they agree: 1 always, 0 as chance would; None where chance always would."""
    total = sum(count for *_, count in said)
    ones: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for one, other, count in said:
        ones[one] += count
        others[other] += count
    by_chance = sum(count * others[value] for value, count in ones.items())
    if not total or by_chance == total * total:
        return None
    return (agreed(said) / total - by_chance / total**2) / (1 - by_chance / total**2)
