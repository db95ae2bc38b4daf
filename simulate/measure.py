"""Measures the engine's steps on the demo model and writes them as a file for the simulator."""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from bench.demo import requests_about
from bench.ours import answer_all, open_ours
from demo.catalog import make_catalog
from demo.system import MODEL
from simulate.steps import DATA, between
from workers.engine.base import Answer, Engine, Observer, Request

OUTPUT = DATA / "demo-cpu.json"
HANDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # requests at hand at once
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (64, 128, 256, 512, 1024, 2048)
VISUAL = (25, 30, 36)  # of a demo picture, at least, mostly and at most
MOST_ROWS = 128  # VQUEUE_STEP_ROWS
LEAST_STEPS = 2
LEAST_PICTURES = 4  # of a step, so that the tower's passes are full
PREFIX_TOKENS = 5  # around a picture: its turn's beginning and its marks
CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Step:
    """One forward pass: `cpu_s` is the engine thread's, without `encode_s` of `pictures` before it."""

    rows: int
    joined: int
    tokens: int
    cpu_s: float
    pictures: int
    visual_tokens: int
    encode_s: float


class Recorder(Observer):
    """Every step with the CPU seconds of the thread that runs it, which other programs do not lengthen."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._since: float | None = None
        self._encoded = Step(0, 0, 0, 0.0, 0, 0, 0.0)

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        now = time.thread_time()
        # The look-ups before a pass are few; what the thread did since the last step is the tower.
        spent = now - self._since if self._since is not None else seconds
        one = self._encoded
        self._encoded = replace(
            one,
            pictures=one.pictures + images,
            visual_tokens=one.visual_tokens + visual_tokens,
            encode_s=one.encode_s + spent,
        )
        self._since = now

    def stepped(
        self,
        *,
        rows: int,
        row_limit: int,
        joined: int,
        prompt_tokens: int,
        cached_tokens: int,
        seconds: float,
    ) -> None:
        del row_limit, cached_tokens, seconds
        now = time.thread_time()
        if self._since is not None:
            spent = now - self._since
            self.steps.append(
                replace(self._encoded, rows=rows, joined=joined, tokens=prompt_tokens, cpu_s=spent)
            )
        self._encoded = Step(0, 0, 0, 0.0, 0, 0, 0.0)
        self._since = now


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=120)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    found = measure(options.pictures)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"measure: steps={found['steps']} output={options.output}")


def measure(pictures: int) -> dict[str, object]:
    """Ask about pictures that no cache knows, few and many at once, and put the steps in tables."""
    recorder = Recorder()
    started = time.perf_counter()
    engine = open_ours(MODEL, threads=1, rows=MOST_ROWS, observer=recorder, cache_bytes=CACHE_BYTES)
    load_s = time.perf_counter() - started
    with closing(engine):
        requests = [one for entry in make_catalog(pictures, broken=()) for one in requests_about(entry)]
        answers, other_s = _ask(engine, recorder, requests)
    encoded = sum(step.pictures for step in recorder.steps)
    visual = sum(step.visual_tokens for step in recorder.steps) / encoded
    question = {
        "own_tokens": mean(answer.usage.prompt_tokens for answer in answers) - visual - PREFIX_TOKENS,
        "answer_tokens": mean(answer.usage.completion_tokens for answer in answers),
        "picture_tokens": visual + PREFIX_TOKENS,
        "visual_tokens": visual,
    }
    return tables(recorder.steps) | {
        "prepare_s": round(other_s / encoded, 6),
        "load_s": round(load_s, 3),
        "question": {name: round(value, 2) for name, value in question.items()},
    }


def _ask(engine: Engine, recorder: Recorder, requests: Sequence[Request]) -> tuple[list[Answer], float]:
    """The answers, and CPU seconds of all threads but the engine's. No round knows another's pictures."""
    spent = time.process_time()
    answers: list[Answer] = []
    for hand in HANDS:
        some = [_renamed(request, hand) for request in requests[: max(hand * 4, 40)]]
        answers += answer_all(engine, some, batch=hand)
    spent = time.process_time() - spent
    return answers, max(0.0, spent - sum(step.cpu_s + step.encode_s for step in recorder.steps))


def _renamed(request: Request, number: int) -> Request:
    images = tuple(replace(image, content_hash=f"{number}.{image.content_hash}") for image in request.images)
    return replace(request, images=images)


def tables(steps: Sequence[Step]) -> dict[str, object]:
    """Medians: decode by rows, what prompts add by tokens, the tower by a picture's visual tokens."""
    decode = _medians([(step.rows, step.cpu_s) for step in steps if not step.joined], ROWS)
    added = [
        (step.tokens, max(0.0, step.cpu_s - between(decode, step.rows))) for step in steps if step.joined
    ]
    tower = [
        (step.visual_tokens / step.pictures, step.encode_s / step.pictures)
        for step in steps
        if step.pictures >= LEAST_PICTURES
    ]
    return {
        "name": "demo-cpu",
        "kind": "measured",
        "about": f"the demo model in float32, one torch thread of {os.cpu_count()} cores, CPU seconds of the "
        f"engine's thread, medians of {len(steps)} steps, by simulate/measure.py",
        "steps": len(steps),
        "decode": decode,
        "prompt": [(0, 0.0), *_medians(added, TOKENS)],
        "encode": _medians(tower, VISUAL),
    }


def _medians(pairs: Iterable[tuple[float, float]], places: Sequence[int]) -> list[tuple[float, float]]:
    """Of the pairs near each place: their mean place, and the median of their seconds."""
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for place, seconds in pairs:
        groups[min(places, key=lambda one: abs(one - place))].append((place, seconds))
    return [
        (round(mean(place for place, _ in some), 2), round(median(seconds for _, seconds in some), 6))
        for _, some in sorted(groups.items())
        if len(some) >= LEAST_STEPS
    ]


if __name__ == "__main__":
    main()
