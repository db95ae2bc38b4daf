"""How sure a small model must be: learned on one part of a labelled sample, judged on the other. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby

from app.agreement import plain
from app.cascade import MOST_STEPS, Cascade, calibrated


@dataclass(frozen=True)
class Trial:
    """One labelled question as both models answered it. `probability` is the small one's of its answer.

    `about` is the same where the same is asked about the same pictures, under whatever id.
    """

    id: str
    about: str
    label: str
    small: str
    probability: float
    small_s: float
    large: str
    large_s: float

    @property
    def small_is_right(self) -> bool:
        return plain(self.small) == plain(self.label)

    @property
    def large_is_right(self) -> bool:
        return plain(self.large) == plain(self.label)


@dataclass(frozen=True)
class Judged:
    """A cascade on questions that it was not made from. Accuracies and shares are from 0 to 1."""

    questions: int
    small_accuracy: float
    large_accuracy: float
    cascade_accuracy: float
    escalated: float
    agreement: float  # of both models, where the large one was asked
    model_s_ratio: float  # of the large one's seconds for everything


@dataclass(frozen=True)
class Point:
    """One threshold, and what a cascade with it would do."""

    threshold: float
    judged: Judged


def split(trials: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
    """The calibration set and the test set, by the hash of what is asked about: always in the same one,
    and never in both, also where reviews have a picture again night after night."""
    halves: tuple[list[Trial], list[Trial]] = ([], [])
    for trial in trials:
        halves[sha256(trial.about.encode()).digest()[0] % 2].append(trial)
    return halves


def fit(trials: Sequence[Trial]) -> tuple[tuple[float, float], ...]:
    """Steps from probability to the share of right answers, rising: pool adjacent violators."""
    pools: list[list[float]] = []  # lowest probability, right ones, all
    ordered = sorted(trials, key=lambda trial: trial.probability)
    for value, alike in groupby(ordered, key=lambda trial: trial.probability):
        right = [float(trial.small_is_right) for trial in alike]
        pools.append([value, sum(right), float(len(right))])
        while len(pools) > 1 and _share(pools[-2]) >= _share(pools[-1]):
            _, more_right, more = pools.pop()
            pools[-1][1] += more_right
            pools[-1][2] += more
    steps = [(pool[0], _share(pool)) for pool in pools]
    return tuple(_thinned(steps))


def curve(trials: Sequence[Trial], steps: Sequence[tuple[float, float]]) -> list[Point]:
    """What each threshold that makes a difference would do, from asking the large one never to always."""
    levels = sorted({calibrated(steps, trial.probability) for trial in trials})
    return [Point(level, judge(trials, steps, level)) for level in [0.0, *levels, 1.01]]


def choose(points: Sequence[Point], *, tolerance: float) -> Point:
    """The cheapest that is at most `tolerance` less accurate than the large model alone."""
    good = [
        point for point in points if point.judged.cascade_accuracy >= point.judged.large_accuracy - tolerance
    ]
    return min(good or points[-1:], key=lambda point: (point.judged.model_s_ratio, point.threshold))


def judge(trials: Sequence[Trial], steps: Sequence[tuple[float, float]], threshold: float) -> Judged:
    unsure = [trial for trial in trials if calibrated(steps, trial.probability) < threshold]
    escalated = {trial.id for trial in unsure}
    right = sum(t.large_is_right if t.id in escalated else t.small_is_right for t in trials)
    seconds = sum(trial.small_s for trial in trials) + sum(trial.large_s for trial in unsure)
    large_s = sum(trial.large_s for trial in trials)
    count = max(1, len(trials))
    return Judged(
        questions=len(trials),
        small_accuracy=sum(trial.small_is_right for trial in trials) / count,
        large_accuracy=sum(trial.large_is_right for trial in trials) / count,
        cascade_accuracy=right / count,
        escalated=len(unsure) / count,
        agreement=sum(plain(t.small) == plain(t.large) for t in unsure) / len(unsure) if unsure else 1.0,
        model_s_ratio=seconds / large_s if large_s else 0.0,
    )


def calibrate(model: str, trials: Sequence[Trial], *, tolerance: float) -> tuple[Cascade, Judged]:
    """A cascade made on the calibration set, and how it does on the test set. ValueError for too few."""
    learned, kept = split(trials)
    if len(learned) < 20 or len(kept) < 20:
        raise ValueError(f"{len(trials)} labelled questions are too few: at least some 60 are needed")
    steps = fit(learned)
    threshold = choose(curve(learned, steps), tolerance=tolerance).threshold
    return Cascade(model, min(threshold, 1.0), steps), judge(kept, steps, threshold)


def _share(pool: Sequence[float]) -> float:
    return pool[1] / pool[2]


def _thinned(steps: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(steps) <= MOST_STEPS:
        return list(steps)
    return [steps[place * (len(steps) - 1) // (MOST_STEPS - 1)] for place in range(MOST_STEPS)]
