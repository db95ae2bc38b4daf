"""Runs a labelled sample through a small and a large model, for `vqueue calibrate`."""

import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.calibration import Trial
from app.cascade import probability
from app.config import Settings
from app.errors import RequestError, WorkError
from workers.answers import logprobs_of
from workers.compare import warm_up
from workers.engine.base import Answer
from workers.engines import open_one as open_engine
from workers.pool import OpenEngine
from workers.reasoning import split_reasoning
from workers.sample import Asked, read_lines

Replies = tuple[list[Answer | None], float]


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
    (firsts, small_s), (seconds, large_s) = (
        _answers(sample, settings, open_one) for settings in (small, large)
    )
    return [
        Trial(
            id=asked.question.id,
            label=asked.question.label or "",
            small=_text(first),
            probability=probability(logprobs_of(first) or ()),
            small_s=small_s,
            large=_text(second),
            large_s=large_s,
        )
        for asked, first, second in zip(sample, firsts, seconds, strict=True)
        if first is not None and second is not None
    ]


def _answers(sample: Sequence[Asked], settings: Settings, open_one: OpenEngine) -> Replies:
    engine = open_one(settings.model_copy(update={"feature_cache_redis_bytes": 0}))
    try:
        engine.submit(warm_up()).result()
        requests = [asked.request(number, settings) for number, asked in enumerate(sample)]
        told = [replace(one, sampling=replace(one.sampling, logprobs=0)) for one in requests]
        started = time.perf_counter()
        futures = [engine.submit(request) for request in told]
        answers: list[Answer | None] = []
        for future in futures:
            try:
                answers.append(future.result())
            except WorkError:
                answers.append(None)
        return answers, (time.perf_counter() - started) / len(sample)
    finally:
        engine.close()
        del engine
        gc.collect()


def _text(answer: Answer) -> str:
    return split_reasoning(answer.text)[1]
