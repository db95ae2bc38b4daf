"""Runs one sample through two engines, one after the other, for `vqueue compare`."""

import gc
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from app.agreement import Comparison, Reply, Side
from app.config import Settings
from app.errors import WorkError
from workers.engine.base import Answer, Request, Sampling, TextPart, Turn
from workers.engines import open_one as open_engine
from workers.pool import OpenEngine
from workers.reasoning import split_reasoning
from workers.sample import TENANT, Asked, read_folder, read_lines


@dataclass(frozen=True)
class Took:
    """What came of each request, in their order, and what all of them took."""

    outcomes: Sequence[Answer | WorkError]
    wall_s: float
    cpu_s: float


def read_sample(source: Path, questions: Sequence[str], settings: Settings) -> list[Asked]:
    """The questions about a folder's images, or else the lines of a file. RequestError if it is none."""
    return read_folder(source, questions, settings) if questions else read_lines(source, settings)


def compare(
    sample: Sequence[Asked], a: Settings, b: Settings, open_one: OpenEngine = open_engine
) -> Comparison:
    """The sample's answers by two models; FatalWork for one that cannot be loaded.

    The second is loaded after the first is gone, so that they share neither memory nor threads; and neither
    reads features that the other may have left in Redis.
    """
    sides = [run_side(sample, settings, open_one) for settings in (a, b)]
    return Comparison([asked.question for asked in sample], *sides)


def run_side(sample: Sequence[Asked], settings: Settings, open_one: OpenEngine) -> Side:
    took = ask_all(
        [asked.request(number, settings) for number, asked in enumerate(sample)], settings, open_one
    )
    return Side(settings.served_model, [_reply(one) for one in took.outcomes], took.wall_s, took.cpu_s)


def ask_all(requests: Sequence[Request], settings: Settings, open_one: OpenEngine) -> Took:
    """Ask one model, which is loaded for it alone, with nothing in Redis; loading is not in its seconds."""
    engine = open_one(settings.model_copy(update={"feature_cache_redis_bytes": 0}))
    try:
        engine.submit(_warm_up()).result()
        wall, cpu = time.perf_counter(), time.process_time()
        outcomes = [_outcome(future) for future in [engine.submit(request) for request in requests]]
        return Took(outcomes, time.perf_counter() - wall, time.process_time() - cpu)
    finally:
        engine.close()
        del engine
        gc.collect()


def _warm_up() -> Request:
    """What a first request costs once (threads, buffers) is not the model's speed."""
    return Request("warm-up", TENANT, (Turn("user", (TextPart("Hello"),)),), (), Sampling(max_tokens=2))


def _outcome(future: Future[Answer]) -> Answer | WorkError:
    try:
        return future.result()
    except WorkError as error:
        return error


def _reply(outcome: Answer | WorkError) -> Reply:
    if isinstance(outcome, WorkError):
        return Reply(None, outcome.code)
    return Reply(split_reasoning(outcome.text)[1], outcome.finish_reason)
