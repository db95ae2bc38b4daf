"""The process of one side of ours or of the library's: reads a Side as JSON, prints a Measure."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils import logging

from bench.oracle import Oracle
from bench.ours import answer_all, open_ours, requests_of
from bench.sides import Measure, Side
from bench.workloads import read_workload, stranger
from workers.engine.base import Answer, Request

BATCH = 16  # of `generate()`
Answering = Callable[[Sequence[Request]], list[Answer]]


def run(side: Side) -> Measure:
    """The workload is in memory when the clock starts, pictures as JPEG bytes."""
    torch.set_num_threads(side.threads)
    requests = requests_of(read_workload(Path(side.workload)))
    warm = requests_of(read_workload(Path(side.warm))) if side.warm else []
    if side.kind == "generate":
        oracle = Oracle(Path(side.checkpoint), dtype=getattr(torch, side.dtype))
        return _timed(lambda some: oracle.answer_batches(some, side.batch or BATCH), requests, warm)
    engine = open_ours(Path(side.checkpoint), threads=side.threads, rows=side.rows, dtype=side.dtype)
    try:
        return _timed(lambda some: answer_all(engine, some, batch=side.batch), requests, warm)
    finally:
        engine.close()


def _timed(answering: Answering, requests: Sequence[Request], warm: Sequence[Request]) -> Measure:
    answering(requests_of(stranger()))
    answering(warm)
    cpu, wall = time.process_time(), time.perf_counter()
    answers = answering(requests)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    texts = {request.id: answer.text for request, answer in zip(requests, answers, strict=True)}
    return Measure(len(requests), cpu, wall, texts)


if __name__ == "__main__":
    logging.disable_progress_bar()
    print(json.dumps(asdict(run(Side(**json.load(sys.stdin))))))
