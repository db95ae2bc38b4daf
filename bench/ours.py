"""Our engine as the benchmarks use it: the one place that opens it, and questions made into requests."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads import Question, Workload, decode
from workers.engine.base import (
    Answer,
    Engine,
    FeatureTier,
    Image,
    ImagePart,
    Observer,
    Request,
    Sampling,
    TextPart,
    Turn,
)
from workers.engine.transformers import open_engine

CACHE_BYTES = 2**30  # of features and of prefixes: nothing that a benchmark asks is ever dropped
PATIENCE_S = 3600.0


class Tally(Observer):
    """What an engine did, added up."""

    def __init__(self) -> None:
        self.steps = 0
        self.rows = 0
        self.places = 0
        self.computed_tokens = 0
        self.cached_tokens = 0
        self.step_s = 0.0
        self.joined = 0
        self.images = 0
        self.visual_tokens = 0
        self.encode_s = 0.0

    @property
    def fill(self) -> float:
        """The mean share of a step's rows that were in use."""
        return self.rows / self.places if self.places else 0.0

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
        self.steps += 1
        self.step_s += seconds
        self.joined += joined
        self.rows += rows
        self.places += row_limit
        self.computed_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        self.images += images
        self.visual_tokens += visual_tokens
        self.encode_s += seconds

    def features_read(self, *, tier: FeatureTier, size: int, visual_tokens: int, seconds: float) -> None:
        pass

    def out_of_memory(self, *, rows: int) -> None:
        pass


def open_ours(
    checkpoint: Path,
    *,
    threads: int,
    rows: int,
    device: str = "cpu",
    dtype: str = "float32",
    observer: Observer | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> Engine:
    return open_engine(
        model=str(checkpoint),
        normaliser="bench",
        observer=observer or Tally(),
        device=device,
        dtype=as_dtype(dtype),
        torch_threads=threads,
        step_rows=rows,
        feature_cache_bytes=cache_bytes,
        prefix_cache_bytes=cache_bytes,
    )


def as_dtype(name: str) -> Any:
    """A literal of the engine's, which checks it."""
    return name


def requests_of(workload: Workload) -> list[Request]:
    """Each image says how many questions about it there are, as a worker knows from the dispatcher."""
    uses = {name: sum(each.picture == name for each in workload.questions) for name in workload.pictures}
    images = {name: image_of(name, data, uses[name]) for name, data in workload.pictures.items()}
    return [request_of(question, images[question.picture]) for question in workload.questions]


def image_of(name: str, data: bytes, uses: int = 1) -> Image:
    """As a worker hands it over: undecoded, and named by what it holds."""
    width, height = decode(data).size
    digest = hashlib.sha256(name.encode() + data).hexdigest()
    return Image(digest, width, height, lambda: np.asarray(decode(data)), uses)


def request_of(question: Question, image: Image) -> Request:
    system = () if question.system is None else (Turn("system", (TextPart(question.system),)),)
    asked = Turn("user", (ImagePart(0), TextPart(question.text)))
    return Request(question.id, "bench", (*system, asked), (image,), Sampling(question.max_tokens))


def answer_all(engine: Engine, requests: Sequence[Request], *, batch: int | None = None) -> list[Answer]:
    """Everything handed in at once, or so many at a time, each batch when all of the last are answered."""
    size = batch or max(1, len(requests))
    answers: list[Answer] = []
    for start in range(0, len(requests), size):
        futures: list[Future[Answer]] = [engine.submit(each) for each in requests[start : start + size]]
        answers += [future.result(PATIENCE_S) for future in futures]
    return answers
