"""Questions that arrive at a steady rate on the demo model: latency beside `generate()` one by one."""

import argparse
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean

import torch
from transformers.utils import logging

from bench.latency import second_turn
from bench.oracle import Oracle
from bench.ours import answer_all, image_of, open_ours
from demo.pictures import as_jpeg, draw, product_for
from demo.products import FIRST_HELD_OUT_SEED, KINDS
from demo.questions import QUESTIONS, question_for
from demo.system import MODEL
from workers.engine.base import Answer, Engine, ImagePart, Request, Sampling, TextPart, Turn

ANSWER_TOKENS = 16
FIRST_SEED = FIRST_HELD_OUT_SEED + 600_000  # pictures that the demo model has not seen
EACH = 10  # questions about a shared picture
SHARED_BY_GENERATE = 40  # questions of the shared pictures that `generate()` answers: each costs it the same
CLAIMS = {"latency_less": 0.40, "shared_throughput": 4.8, "second_turn_faster": 0.60}
Submit = Callable[[Request], "Future[Answer]"]


@dataclass(frozen=True)
class Latency:
    """Of the questions offered in a window; one without an answer at its end took the time until then."""

    offered: int
    answered: int
    mean_s: float
    p99_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="questions offered per second")
    parser.add_argument("--window", type=float, default=30.0, help="seconds of each side's turn")
    parser.add_argument(
        "--pictures", type=int, default=20, help="pictures of ten questions each, asked at once"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads of either side")
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    oracle = Oracle(MODEL)
    with closing(open_ours(MODEL, threads=options.threads, rows=64)) as engine:
        _report(options, engine, oracle)


def _report(options: argparse.Namespace, engine: Engine, oracle: Oracle) -> None:
    answer_all(engine, unshared_questions(2, seed=1))
    oracle.answer_batches(unshared_questions(2, seed=1), 1)
    arrivals = arrivals_at(options.rate, options.window, seed=0)
    asked = unshared_questions(len(arrivals), seed=2)
    with closing(OneByOne(oracle)) as one_by_one:
        theirs = offer(one_by_one.submit, asked, arrivals, options.window)
    ours = offer(engine.submit, asked, arrivals, options.window)
    shared = shared_throughput(engine, oracle, options.pictures)
    share = second_turn(engine, first_questions(20), "What colour is the item?")
    for name, latency in (("generate(), one by one", theirs), ("ours", ours)):
        print(
            f"{name:<24}offered {latency.offered:5}  answered {latency.answered:5}  "
            f"mean {latency.mean_s:8.3f} s  P99 {latency.p99_s:8.3f} s"
        )
    if theirs.answered < theirs.offered:
        print(
            "generate() cannot keep up: its queue grows, and its latencies are what they had come to by then"
        )
    found = {
        "latency_less": 1 - ours.mean_s / theirs.mean_s,
        "shared_throughput": shared,
        "second_turn_faster": 1 - share,
    }
    for name, claim in CLAIMS.items():
        print(f"{name:<24}{found[name]:8.2f}  claimed {claim:.2f}")
    print(last_line(options.rate, ours, theirs, found))


def last_line(rate: float, ours: Latency, theirs: Latency, found: dict[str, float]) -> str:
    pairs = [f"{name}={value:.2f}" for name, value in found.items()]
    return (
        f"load: offered_per_s={rate:.0f} mean_s={ours.mean_s:.3f} p99_s={ours.p99_s:.3f} "
        f"one_by_one_mean_s={theirs.mean_s:.3f} one_by_one_p99_s={theirs.p99_s:.3f} "
        f"answered={ours.answered}/{ours.offered} one_by_one_answered={theirs.answered}/{theirs.offered} "
        + " ".join(pairs)
    )


class OneByOne:
    """A queue in front of `generate()`: one request at a time, in the order of arrival."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._pool = ThreadPoolExecutor(1)

    def submit(self, request: Request) -> "Future[Answer]":
        return self._pool.submit(self._oracle.answer, request)

    def close(self) -> None:
        """Waits for the one that runs; the queue is dropped."""
        self._pool.shutdown(cancel_futures=True)


def offer(submit: Submit, asked: Sequence[Request], arrivals: Sequence[float], window_s: float) -> Latency:
    """Hand each request in at its time, however many wait; look at the clock when the window ends."""
    taken: dict[int, float] = {}
    started = time.perf_counter()
    for number, (request, arrival) in enumerate(zip(asked, arrivals, strict=True)):
        _wait_until(started + arrival)
        future = submit(request)
        future.add_done_callback(partial(_note, taken, number, started + arrival))
    _wait_until(started + window_s)
    answered = dict(taken)
    return latency_of(answered, arrivals, window_s)


def _note(taken: dict[int, float], number: int, since: float, future: "Future[Answer]") -> None:
    if not future.cancelled() and future.exception() is None:
        taken[number] = time.perf_counter() - since


def latency_of(answered: dict[int, float], arrivals: Sequence[float], window_s: float) -> Latency:
    """`answered` has the seconds that each answered question took, by its number."""
    seconds = [answered.get(number, window_s - arrival) for number, arrival in enumerate(arrivals)]
    return Latency(len(arrivals), len(answered), mean(seconds), percentile(seconds, 0.99))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def arrivals_at(rate: float, window_s: float, *, seed: int) -> list[float]:
    """Poisson arrivals, in seconds from the start."""
    rng = random.Random(seed)
    times: list[float] = []
    now = rng.expovariate(rate)
    while now < window_s:
        times.append(now)
        now += rng.expovariate(rate)
    return times


def unshared_questions(count: int, *, seed: int) -> list[Request]:
    """The catalog's questions about each picture in turn, no picture asked about more often than that."""
    pictures = math.ceil(count / len(KINDS))
    requests = [
        _request(picture, question_for(kind, picture), uses=len(KINDS))
        for picture in range(FIRST_SEED + 1000 * seed, FIRST_SEED + 1000 * seed + pictures)
        for kind in KINDS
    ]
    return random.Random(seed).sample(requests, len(requests))[:count]


def first_questions(pictures: int) -> list[Request]:
    """One question about each of so many pictures."""
    seeds = range(FIRST_SEED + 400_000, FIRST_SEED + 400_000 + pictures)
    return [_request(seed, question_for("item", seed), uses=2) for seed in seeds]


def shared_questions(pictures: int) -> list[Request]:
    wordings = [wording for wordings in QUESTIONS.values() for wording in wordings]
    return [
        _request(FIRST_SEED + 500_000 + number, wording, uses=EACH)
        for number in range(pictures)
        for wording in random.Random(number).sample(wordings, EACH)
    ]


def shared_throughput(engine: Engine, oracle: Oracle, pictures: int) -> float:
    """Questions per second over those of `generate()` one by one, where ten share a picture."""
    asked = shared_questions(pictures)
    some = asked[:SHARED_BY_GENERATE]
    ours = _seconds(lambda: answer_all(engine, asked)) / len(asked)
    theirs = _seconds(lambda: oracle.answer_batches(some, 1)) / len(some)
    return theirs / ours


def _request(seed: int, text: str, *, uses: int) -> Request:
    image = replace(image_of(f"product{seed}", _photo(seed)), expected_uses=uses)
    turn = Turn("user", (ImagePart(0), TextPart(text)))
    return Request(f"{seed} {text}", "bench", (turn,), (image,), Sampling(ANSWER_TOKENS))


def _photo(seed: int) -> bytes:
    return as_jpeg(draw(product_for(seed, held_out=True), seed))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _wait_until(moment: float) -> None:
    threading.Event().wait(max(0.0, moment - time.perf_counter()))


if __name__ == "__main__":
    main()
