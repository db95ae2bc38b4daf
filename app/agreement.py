"""Two models' answers to one sample, held against each other: where they agree, and what they took. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Question:
    """One question of a sample; its kind is what the sample's maker calls it, for shares of their own."""

    id: str
    text: str
    kind: str | None = None
    label: str | None = None  # the right answer, where it is known


@dataclass(frozen=True)
class Reply:
    """An answer's text and finish reason, or no text and the code of an error."""

    text: str | None
    ending: str


@dataclass(frozen=True)
class Side:
    """What one model answered, in the order of the questions, and what it took; loading is not counted."""

    name: str
    replies: Sequence[Reply]
    wall_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return len(self.replies) / max(self.wall_s, 1e-9)

    @property
    def cpu_s_each(self) -> float:
        return self.cpu_s / max(1, len(self.replies))

    def endings(self) -> dict[str, int]:
        """How many answers ended in which way, the commonest first."""
        return dict(Counter(reply.ending for reply in self.replies).most_common())


@dataclass(frozen=True)
class Agreement:
    """Of some questions, how many were answered alike: to the letter, and but for case and spaces."""

    questions: int
    exact: int
    normalised: int

    @property
    def share(self) -> float:
        return self.exact / max(1, self.questions)

    @property
    def normalised_share(self) -> float:
        return self.normalised / max(1, self.questions)


@dataclass(frozen=True)
class Pair:
    """A question and how each side answered it."""

    question: Question
    a: Reply
    b: Reply

    @property
    def is_exact(self) -> bool:
        return self.a.text is not None and self.a.text == self.b.text

    @property
    def is_normalised(self) -> bool:
        """Alike when upper and lower case and the amount of space between words do not count."""
        both = self.a.text is not None and self.b.text is not None
        return both and plain(self.a.text or "") == plain(self.b.text or "")


@dataclass(frozen=True)
class Comparison:
    questions: Sequence[Question]
    a: Side
    b: Side

    def agreement(self) -> Agreement:
        return _agreement(self._pairs())

    def by_kind(self) -> dict[str, Agreement]:
        """Of each kind, in the order in which they come; questions without one are left out."""
        kinds = dict.fromkeys(question.kind for question in self.questions if question.kind)
        pairs = self._pairs()
        return {kind: _agreement([pair for pair in pairs if pair.question.kind == kind]) for kind in kinds}

    def disagreements(self) -> list[Pair]:
        """Questions not answered alike to the letter; one without an answer on either side is among them."""
        return [pair for pair in self._pairs() if not pair.is_exact]

    def _pairs(self) -> list[Pair]:
        return [Pair(*row) for row in zip(self.questions, self.a.replies, self.b.replies, strict=True)]


def as_json(found: Comparison) -> Mapping[str, object]:
    """The whole comparison, every disagreement included, as JSON to be."""
    sides = {"a": found.a, "b": found.b}
    return {
        "agreement": _agreement_json(found.agreement()),
        "by_kind": {kind: _agreement_json(one) for kind, one in found.by_kind().items()},
        **{name: _side_json(side) for name, side in sides.items()},
        "disagreements": [asdict(one) for one in found.disagreements()],
    }


def last_line(found: Comparison) -> str:
    share = found.agreement().share
    return f"compare: agreement={share:.3f} a_per_s={found.a.per_s:.2f} b_per_s={found.b.per_s:.2f}"


def _agreement_json(found: Agreement) -> Mapping[str, object]:
    return {**asdict(found), "share": found.share, "normalised_share": found.normalised_share}


def _side_json(side: Side) -> Mapping[str, object]:
    return {
        "model": side.name,
        "per_s": side.per_s,
        "wall_s": side.wall_s,
        "cpu_s": side.cpu_s,
        "cpu_s_per_question": side.cpu_s_each,
        "finish_reasons": side.endings(),
    }


def _agreement(pairs: Sequence[Pair]) -> Agreement:
    return Agreement(
        len(pairs), sum(pair.is_exact for pair in pairs), sum(pair.is_normalised for pair in pairs)
    )


def plain(text: str) -> str:
    """A text without its upper and lower case, and the amount of space between its words."""
    return " ".join(text.casefold().split())
