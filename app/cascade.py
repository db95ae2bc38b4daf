"""Two models for one batch: the small one is asked first, the large one where that is unsure. Pure."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.results import StoredLogprobs

MOST_STEPS = 256


@dataclass(frozen=True)
class Cascade:
    """Ask `model` first; what it is less sure of than `threshold` goes to the model that a request names.

    `steps` turn a model's own probability of its answer into how often such answers are right: rising pairs,
    each holding from its probability up. Without steps the model's own word is taken.
    """

    model: str
    threshold: float
    steps: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Cascade":
        return cls(stored["model"], stored["threshold"], tuple((a, b) for a, b in stored.get("steps") or ()))

    def stored(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "threshold": self.threshold,
            "steps": [list(step) for step in self.steps],
        }

    def confidence(self, logprobs: StoredLogprobs | None) -> float:
        """How sure the first model's answer is, from 0 to 1; 0 where it has not said."""
        if not logprobs:
            return 0.0
        return calibrated(self.steps, probability(logprobs))

    def is_sure(self, confidence: float) -> bool:
        return confidence >= self.threshold


def probability(logprobs: StoredLogprobs) -> float:
    """Of the whole answer, as the model that gave it sees it: the product over its tokens."""
    return math.exp(min(0.0, sum(logprob for _, logprob, _ in logprobs)))


def calibrated(steps: Sequence[tuple[float, float]], value: float) -> float:
    if not steps:
        return value
    place = bisect_right(steps, value, key=lambda step: step[0]) - 1
    return steps[max(place, 0)][1]
