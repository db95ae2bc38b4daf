"""How long an answer takes when the engine knows the picture, or the talk so far, beside when it does not."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.ours import open_ours, requests_of
from bench.workloads import Workload
from workers.engine.base import Answer, Engine, Request, TextPart, Turn


def second_question(checkpoint: Path, asked: Workload) -> float:
    """The time to the answer of a picture's second question as a share of the first's, one at a time.

    The workload has two questions about each picture, one after the other.
    """
    requests = requests_of(asked)
    engine = open_ours(checkpoint, threads=1, rows=16)
    try:
        times = [timed(engine, request)[1] for request in requests]
    finally:
        engine.close()
    return median(times[1::2]) / median(times[::2])


def second_turn(engine: Engine, requests: Sequence[Request], words: str) -> float:
    """The time of a second turn as a share of the first's, in talks that begin with these requests."""
    first: list[float] = []
    second: list[float] = []
    for request in requests:
        answer, seconds = timed(engine, request)
        first.append(seconds)
        second.append(timed(engine, next_turn(request, answer, words))[1])
    return median(second) / median(first)


def next_turn(request: Request, answer: Answer, words: str) -> Request:
    said = Turn("assistant", (TextPart(answer.text),))
    return replace(request, turns=(*request.turns, said, Turn("user", (TextPart(words),))))


def timed(engine: Engine, request: Request) -> tuple[Answer, float]:
    started = time.perf_counter()
    answer = engine.submit(request).result()
    return answer, time.perf_counter() - started
