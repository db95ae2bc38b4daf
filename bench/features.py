"""Features in bytes and seconds, encoded or read from Redis, and what 8 bits change in logits and answers."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, TypeVar

import numpy as np
import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures
from transformers.utils import logging

from app.images import Limits, normalise
from app.local.folder import DataFolder
from app.local.supervisor import Supervisor
from app.local.valkey import Valkey
from bench.oracle import Oracle
from demo.catalog import Entry, make_catalog
from demo.client import MAX_TOKENS
from demo.products import KINDS
from demo.questions import question_for
from demo.system import MODEL
from workers.engine.base import Image, ImagePart, Request, Sampling, Silent, TextPart, Turn
from workers.engine.feature_codec import Features, Format, keep, restore
from workers.engine.features import FeatureCache, FeatureKey, MemoryTier
from workers.engine.load import load_checkpoint
from workers.engine.redis_tier import RedisTier, connect
from workers.engine.single_flight import Waits
from workers.engine.transformers import TransformersEngine

GIB = 2**30
T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """One picture, what the tower gives for it, and how long it took."""

    image: Image
    features: Features
    seconds: float


@dataclass(frozen=True)
class Reading:
    """A tier in one format: bytes of an image, and seconds to write it and to read it back."""

    size: int
    write_s: float
    read_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=30)
    parser.add_argument("--side", type=int, default=0, help="enlarge pictures to squares of this many pixels")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    oracle = Oracle(options.model, dtype=getattr(torch, options.dtype))
    entries = make_catalog(options.pictures, broken=())
    samples = [encode(oracle, picture(entry, options.side)) for entry in entries]
    with valkey() as url:
        readings = {form: read_back(url, samples, form) for form in Format}
    differences = [
        logits_difference(oracle, request, sample)
        for sample, entry in zip(samples, entries, strict=True)
        for request in questions(entry, sample.image)
    ]
    report(samples, readings, differences, changed_answers(options, samples, entries))


def picture(entry: Entry, side: int) -> Image:
    pixels = normalise(entry.picture or b"", Limits())
    return Image.of(entry.id, np.asarray(pixels.resize((side, side)) if side else pixels))


def questions(entry: Entry, image: Image) -> list[Request]:
    return [
        Request(
            id=f"{entry.id}/{kind}",
            tenant="bench",
            turns=(Turn("user", (ImagePart(0), TextPart(question_for(kind, entry.seed)))),),
            images=(image,),
            sampling=Sampling(max_tokens=MAX_TOKENS),
        )
        for kind in KINDS
    ]


@torch.inference_mode()
def encode(oracle: Oracle, image: Image) -> Sample:
    """The tower alone, once cold and once for the clock."""
    pixels, grid = _patches(oracle, image)
    output, seconds = _timed(lambda: oracle.model.model.get_image_features(pixels, grid, return_dict=True), 2)
    levels = [output.pooler_output[0], *(level[0] for level in output.deepstack_features)]
    return Sample(image, torch.stack([level.reshape(-1, levels[0].shape[-1]) for level in levels]), seconds)


def _patches(oracle: Oracle, image: Image) -> tuple[torch.Tensor, torch.Tensor]:
    made: Any = oracle.processor.image_processor(images=[image.load()], return_tensors="pt")
    return made["pixel_values"].to(oracle.model.dtype), made["image_grid_thw"]


def read_back(url: str, samples: Sequence[Sample], form: Format) -> Reading:
    """Through the tier itself: packing, the network of this machine, checking and unpacking."""
    dtype = samples[0].features.dtype
    tier = RedisTier(client=connect(url), ttl_s=600, budget=4 * GIB, observer=Silent(), waits=Waits(slots=0))
    sizes, writes, reads = [], [], []
    with closing(tier):
        for sample in samples:
            shape = _shape(sample.features)
            key = FeatureKey("bench", sample.image.content_hash, "", str(dtype), 0, 0, "1", form)
            kept = keep(sample.features, form)
            _, write_s = _timed(lambda key=key, kept=kept: (tier.write(key, kept), tier.flush()))
            found, read_s = _timed(lambda key=key, shape=shape: tier.peek(key, shape=shape, dtype=dtype), 3)
            assert found is not None
            _, restore_s = _timed(lambda found=found: restore(found, dtype), 3)
            sizes.append(kept.nbytes)
            writes.append(write_s)
            reads.append(read_s + restore_s)
    return Reading(round(mean(sizes)), mean(writes), mean(reads))


def _shape(features: Features) -> tuple[int, int, int]:
    levels, tokens, width = features.shape
    return levels, tokens, width


@torch.inference_mode()
def logits_difference(oracle: Oracle, request: Request, sample: Sample) -> tuple[float, float, float]:
    """Of the first new token's logits, largest and mean difference, and 1 if another token leads."""
    inputs = oracle.inputs([request])
    del inputs["pixel_values"]
    exact, rounded = (
        _logits(oracle, inputs, features)
        for features in (
            sample.features,
            restore(keep(sample.features, Format.INT8), sample.features.dtype),
        )
    )
    apart = (exact - rounded).abs()
    return float(apart.max()), float(apart.mean()), float(exact.argmax() != rounded.argmax())


def _logits(oracle: Oracle, inputs: dict[str, torch.Tensor], features: Features) -> torch.Tensor:
    pooled, *deepstack = features
    given = BaseModelOutputWithDeepstackFeatures(
        pooler_output=[pooled],  # pyright: ignore[reportArgumentType]
        deepstack_features=[[level] for level in deepstack],  # pyright: ignore[reportArgumentType]
    )
    output = oracle.model(**inputs, mm_encoder_outputs={"image": given}, logits_to_keep=1, use_cache=False)
    return output.logits[0, -1].float()


def changed_answers(
    options: argparse.Namespace, samples: Sequence[Sample], entries: Sequence[Entry]
) -> float:
    """The share of greedy answers that differ when features come back from 8 bits."""
    requests = [
        request
        for sample, entry in zip(samples, entries, strict=True)
        for request in questions(entry, replace(sample.image, expected_uses=2))
    ]
    cache = FeatureCache(memory=MemoryTier(budget=4 * GIB), store=None, observer=Silent(), form=Format.INT8)
    exact, rounded = (answers(options, requests, cache) for _ in range(2))
    return mean(one != other for one, other in zip(exact, rounded, strict=True))


def answers(options: argparse.Namespace, requests: Sequence[Request], cache: FeatureCache) -> list[str]:
    """An engine of its own, so that no prefix is known: only the cache is left from the one before."""
    checkpoint = load_checkpoint(str(options.model), dtype=options.dtype)
    engine = TransformersEngine(
        name="bench", checkpoint=checkpoint, cache=cache, observer=Silent(), normaliser="1"
    )
    with closing(engine):
        futures = [engine.submit(request) for request in requests]
        return [future.result().text for future in futures]


def report(
    samples: Sequence[Sample],
    readings: dict[Format, Reading],
    differences: Sequence[tuple[float, float, float]],
    changed: float,
) -> None:
    encode_s = mean(sample.seconds for sample in samples)
    tokens = mean(sample.features.shape[1] for sample in samples)
    print(f"{len(samples)} pictures of {tokens:.0f} visual tokens; the tower takes {1000 * encode_s:.2f} ms")
    for form, reading in readings.items():
        print(
            f"{form:<8}{reading.size:>12,} bytes   write {1000 * reading.write_s:8.2f} ms   "
            f"read {1000 * reading.read_s:8.2f} ms   encode / read {encode_s / reading.read_s:8.1f}"
        )
    largest, average = max(most for most, _, _ in differences), mean(some for _, some, _ in differences)
    first = mean(other for _, _, other in differences)
    print(f"8 bits move the first token's logits by {average:.5f} in the mean, {largest:.4f} at most;")
    print(f"another first token leads in {first:.2%}, and {changed:.2%} of the answers change")
    native, small = readings[Format.NATIVE], readings[Format.INT8]
    print(
        f"features: bytes_native={native.size} bytes_int8={small.size} encode_s={encode_s:.5f} "
        f"read_native_s={native.read_s:.5f} read_int8_s={small.read_s:.5f} logits_mean={average:.5f} "
        f"logits_max={largest:.4f} answers_changed={changed:.4f}"
    )


@contextmanager
def valkey() -> Iterator[str]:
    """A server of our own, from the wheel."""
    with TemporaryDirectory(prefix="vqueue-bench-") as path:
        folder = DataFolder(Path(path))
        folder.lock()
        hurry = Event()
        hurry.set()  # its data is thrown away
        supervisor = Supervisor(
            logs=Path(path) / "logs", say=lambda _: None, keep_fd=folder.lock_fd, hurry=hurry
        )
        server = Valkey(folder)
        try:
            for program in server.prepare():
                supervisor.start(program)
            yield server.url(0)
        finally:
            supervisor.stop()
            folder.unlock()


def _timed(work: Callable[[], T], repeats: int = 1) -> tuple[T, float]:
    """What it gives, and the shortest of its runs: the machine is shared."""
    started = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - started
    return (found, seconds) if repeats == 1 else (found, min(seconds, _timed(work, repeats - 1)[1]))


if __name__ == "__main__":
    main()
