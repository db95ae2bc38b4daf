"""Runs a labelled sample through a small and a large model, for `vqueue calibrate`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.calibration import Trial
from app.cascade import probability
from app.config import Settings
from app.errors import RequestError
from workers.answers import logprobs_of
from workers.compare import Took, ask_all
from workers.engine.base import Answer
from workers.engines import open_one as open_engine
from workers.pool import OpenEngine
from workers.reasoning import split_reasoning
from workers.sample import Asked, read_lines


def read_labelled(path: Path, settings: Settings) -> list[Asked]:
    """A sample's lines, each with the right answer in `metadata.label`; RequestError names one without."""
    asked = read_lines(path, settings)
    for one in asked:
        if one.question.label is None:
            raise RequestError(
                f"{path}: the question {one.question.id!r} has no label: write the right answer into "
                '"metadata": {"label": "..."} of its body'
            )
    if len({one.question.id for one in asked}) < len(asked):
        raise RequestError(f"{path}: a custom_id stands twice; each question needs its own")
    return asked


def run_trials(
    sample: Sequence[Asked], small: Settings, large: Settings, open_one: OpenEngine = open_engine
) -> list[Trial]:
    """Every question as both answered it; those that one of them failed are left out.

    Seconds are an even share of what the whole sample took a model, which is loaded alone.
    """
    first_took, then_took = (_asked(sample, settings, open_one) for settings in (small, large))
    return [
        Trial(
            id=asked.question.id,
            about=_about(asked),
            label=asked.question.label or "",
            small=_text(first),
            probability=probability(logprobs_of(first) or ()),
            small_s=first_took.wall_s / len(sample),
            large=_text(second),
            large_s=then_took.wall_s / len(sample),
        )
        for asked, first, second in zip(sample, first_took.outcomes, then_took.outcomes, strict=True)
        if isinstance(first, Answer) and isinstance(second, Answer)
    ]


def _about(asked: Asked) -> str:
    return "\n".join([*(image.content_hash for image in asked.images), json.dumps(asked.body.prompt)])


def _asked(sample: Sequence[Asked], settings: Settings, open_one: OpenEngine) -> Took:
    """Every request told to say how sure the model is."""
    requests = [asked.request(number, settings) for number, asked in enumerate(sample)]
    told = [replace(one, sampling=replace(one.sampling, logprobs=0)) for one in requests]
    return ask_all(told, settings, open_one)


def _text(answer: Answer) -> str:
    return split_reasoning(answer.text)[1]
