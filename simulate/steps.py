"""How long the engine takes: step times over rows, prompt tokens and visual tokens, from a file."""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

DATA = Path(__file__).parent / "data"
Points = Sequence[tuple[float, float]]


class BadSteps(ValueError):
    """A file of step times that makes no sense; the text says which part."""


@dataclass(frozen=True)
class Question:
    """What jobs are like: tokens each computes beside its picture, tokens of its answer, pictures' tokens.

    `per_picture` jobs in a row show the same picture, which is encoded and computed once for them;
    `picture_tokens` is what the picture's prefix has, `visual_tokens` what the tower gives of these.
    """

    own_tokens: float
    answer_tokens: float
    picture_tokens: float
    visual_tokens: float
    per_picture: float = 1.0

    @property
    def new_tokens(self) -> float:
        """Prompt tokens computed for each job, its part of the picture's among them."""
        return self.own_tokens + self.picture_tokens / self.per_picture


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the engine, by linear interpolation between the points of a file.

    `decode` is a step over so many rows; `prompt` what so many new prompt tokens add to it; `encode` what the
    vision tower takes for a picture of so many visual tokens. `prepare_s` is what decoding and preparing a
    picture takes on other threads. `load_s` is from a process's start until it takes chunks.
    """

    name: str
    measured: bool
    about: str
    decode: Points
    prompt: Points
    encode: Points
    prepare_s: float
    load_s: float
    rows: int = 128  # VQUEUE_STEP_ROWS
    tokens: int = 2048  # VQUEUE_STEP_TOKENS

    def __post_init__(self) -> None:
        for name in ("decode", "prompt", "encode"):
            points: Points = getattr(self, name)
            if not points or any(seconds < 0 for _, seconds in points):
                raise BadSteps(f"{self.name}: {name} has no points, or some below zero")
            if sorted({place for place, _ in points}) != [place for place, _ in points]:
                raise BadSteps(f"{self.name}: {name} does not rise")

    def step_s(self, rows: float, joining: float, question: Question, *, cached: float = 0.0) -> float:
        """One step over `rows`, `joining` of which are new; `cached` is the share of known features."""
        pictures = joining / question.per_picture * (1 - cached)
        return (
            between(self.decode, rows)
            + between(self.prompt, joining * question.new_tokens)
            + pictures * between(self.encode, question.visual_tokens)
        )

    def joining(self, rows: float, question: Question) -> float:
        """New rows of each step when `rows` run and each leaves after its answer: as steps have room."""
        return min(rows / question.answer_tokens, self.tokens / question.new_tokens)

    def jobs_s(self, at_hand: float, question: Question, *, cached: float = 0.0) -> float:
        """Jobs per second of an engine that holds so many; more than a step's rows wait."""
        rows = min(at_hand, float(self.rows))
        if rows <= 0:
            return 0.0
        joining = self.joining(rows, question)
        rows = joining * question.answer_tokens
        return joining / self.step_s(rows, joining, question, cached=cached)

    def answer_s(self, rows: float, question: Question, *, cached: float = 0.0) -> float:
        """Of one urgent job beside `rows` others: half a step that runs, then those of its own answer."""
        joining = self.joining(min(rows, self.rows), question)
        step = self.step_s(rows, joining, question, cached=cached)
        first = self.step_s(rows + 1, 1, question, cached=cached)
        return step / 2 + first + (question.answer_tokens - 1) * step

    @cached_property
    def summary(self) -> str:
        """Whether it was measured, where, and on what."""
        return f"{'measured' if self.measured else 'ASSUMED, not measured'}: {self.about}"


def between(points: Points, place: float) -> float:
    """The value at a place: on the line between its neighbours, or on the last line drawn further.

    Below the first point the line comes from the origin where the first place is above 0.
    """
    places = [point for point, _ in points]
    after = bisect_left(places, place)
    if after == 0:
        first, value = points[0]
        return value * place / first if first > 0 else value
    if after == len(points):
        if len(points) == 1:
            return points[0][1] * place / points[0][0] if points[0][0] > 0 else points[0][1]
        after -= 1
    (left, low), (right, high) = points[after - 1], points[after]
    return max(0.0, low + (high - low) * (place - left) / (right - left))


def read_steps(path: Path) -> StepTimes:
    """A file of `simulate.measure`, or one written by hand; BadSteps for what is none."""
    try:
        return steps_of(json.loads(path.read_text()))
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise BadSteps(f"{path}: {error}") from error


def read_question(path: Path) -> Question:
    """What was asked when a file of step times was measured."""
    return Question(**json.loads(path.read_text())["question"])


def steps_of(found: Mapping[str, Any]) -> StepTimes:
    kind: Literal["measured", "assumed"] = found["kind"]
    if kind not in ("measured", "assumed"):
        raise BadSteps(f"kind is {kind!r}, not measured or assumed")
    return StepTimes(
        name=found["name"],
        measured=kind == "measured",
        about=found["about"],
        decode=_points(found["decode"]),
        prompt=_points(found["prompt"]),
        encode=_points(found["encode"]),
        prepare_s=float(found["prepare_s"]),
        load_s=float(found["load_s"]),
        rows=int(found.get("rows", 128)),
        tokens=int(found.get("tokens", 2048)),
    )


def _points(found: Sequence[Sequence[float]]) -> Points:
    return tuple((float(place), float(seconds)) for place, seconds in found)
