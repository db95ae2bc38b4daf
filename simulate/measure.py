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
from statistics import median

from bench.demo import requests_about
from bench.ours import answer_all, open_ours
from demo.catalog import make_catalog
from demo.system import MODEL
from simulate.steps import DATA
from workers.engine.base import Engine, Observer, Request

OUTPUT = DATA / "demo-cpu.json"
HANDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # requests at hand at once
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (64, 128, 256, 512, 1024, 2048)
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
    engine = open_ours(MODEL, threads=1, rows=max(ROWS), observer=recorder, cache_bytes=CACHE_BYTES)
    load_s = time.perf_counter() - started
    with closing(engine):
        requests = [one for entry in make_catalog(pictures, broken=()) for one in requests_about(entry)]
        prepare_s = _ask(engine, recorder, requests) / pictures
    return tables(recorder.steps, prepare_s=prepare_s, load_s=load_s)


def _ask(engine: Engine, recorder: Recorder, requests: Sequence[Request]) -> float:
    """CPU seconds of all other threads; images have other names in each round, so that none is known."""
    process, steps = time.process_time(), len(recorder.steps)
    for hand in HANDS:
        some = [_renamed(request, hand) for request in requests[: max(hand * 4, 40)]]
        answer_all(engine, some, batch=hand)
    spent = time.process_time() - process
    own = sum(step.cpu_s + step.encode_s for step in recorder.steps[steps:])
    asked = sum(step.pictures for step in recorder.steps[steps:])
    return max(0.0, spent - own) * len({r.images[0].content_hash for r in requests}) / max(1, asked)


def _renamed(request: Request, round_: int) -> Request:
    images = tuple(replace(image, content_hash=f"{round_}.{image.content_hash}") for image in request.images)
    return replace(request, images=images)


def tables(steps: Sequence[Step], *, prepare_s: float, load_s: float) -> dict[str, object]:
    """Medians: decode by rows, what prompts add by tokens, the tower by a picture's visual tokens."""
    alone = [step for step in steps if not step.joined]
    decode = _medians(((_near(step.rows, ROWS), step.cpu_s) for step in alone), least=3)
    added = [
        (_near(step.tokens, TOKENS), step.cpu_s - _at(decode, step.rows)) for step in steps if step.joined
    ]
    tower = [
        (round(step.visual_tokens / step.pictures), step.encode_s / step.pictures)
        for step in steps
        if step.pictures >= 4
    ]
    return {
        "name": "demo-cpu",
        "kind": "measured",
        "about": f"the demo model in float32, one torch thread of {os.cpu_count()} cores, CPU seconds of the "
        f"engine's thread over {len(steps)} steps, by simulate/measure.py",
        "steps": len(steps),
        "decode": decode,
        "prompt": [[0, 0.0], *((tokens, max(0.0, s)) for tokens, s in _medians(added, least=2))],
        "encode": _medians([(_near(visual, (25, 30, 36)), s) for visual, s in tower], least=2),
        "prepare_s": round(prepare_s, 6),
        "load_s": round(load_s, 3),
    }


def _near(value: float, places: Iterable[int]) -> int:
    return min(places, key=lambda place: abs(place - value))


def _medians(pairs: Iterable[tuple[int, float]], *, least: int) -> list[list[float]]:
    groups: dict[int, list[float]] = defaultdict(list)
    for place, seconds in pairs:
        groups[place].append(seconds)
    return [[place, round(median(some), 6)] for place, some in sorted(groups.items()) if len(some) >= least]


def _at(decode: Sequence[Sequence[float]], rows: int) -> float:
    return min(decode, key=lambda point: abs(point[0] - rows))[1]


if __name__ == "__main__":
    main()
