"""What `bench.gpu` measures: a model drawn on the device, never on disk, answered by our engine."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load, save
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

from bench.checkpoint import (
    TINY,
    TOKEN_AREA,
    Shape,
    config_for,
    draw_weights,
    generation_config,
    image_processor,
    rope,
    speak_only,
    word_tokenizer,
    words,
)
from bench.ours import Tally, answer_all, open_ours, requests_of
from bench.workloads import Workload, catalog, decode
from workers.engine.base import Engine

EACH = 10  # questions about a picture
REPEATS = 5
SHOWN = ("questions_per_s", "step_fill", "encode_ms", "read_ms", "read_bytes_ms")
EIGHT_B = Shape(
    text={
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262_144,
        "rope_parameters": rope([24, 20, 20], 5_000_000.0),
    },
    vision={
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "depth": 27,
        "num_heads": 16,
        "out_hidden_size": 4096,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
    min_pixels=64 * TOKEN_AREA,
    max_pixels=1024 * TOKEN_AREA,
    text_std=0.03,
    vision_std=0.05,
)
SIZES = {"8b": EIGHT_B, "tiny": TINY}


@dataclass(frozen=True)
class Found:
    """What one pass over questions took."""

    per_s: float
    fill: float


def run(shape: Shape, *, device: str, pictures: int, rows: int, limit_s: float) -> str:
    """Measure part after part, and give the last line; what the limit leaves no time for says `na`."""
    started = time.perf_counter()
    found: dict[str, float] = {}

    def part(name: str, work: Callable[[], float]) -> None:
        if time.perf_counter() - started < limit_s:
            found[name] = work()
            print(f"{name:<28}{found[name]:10.3f}   at {time.perf_counter() - started:5.1f} s", flush=True)

    with TemporaryDirectory() as name, drawn_on(device, shape) as models:
        folder = write_settings(Path(name), shape)
        tally = Tally()
        dtype = "bfloat16" if device != "cpu" else "float32"
        engine = open_ours(folder, threads=0, rows=rows, device=device, dtype=dtype, observer=tally)
        with closing(engine):
            asked = catalog(words(), pictures=pictures, each=EACH)
            answer_all(engine, requests_of(catalog(words(), pictures=1, each=2, seed=9)))
            part("questions_per_s", lambda: _pass(engine, tally, asked).per_s)
            part("step_fill", lambda: tally.fill)
            part("apart_per_s", lambda: _pass(engine, tally, _behind(asked, shared=False)).per_s)
            part("shared_per_s", lambda: _pass(engine, tally, _behind(asked, shared=True)).per_s)
        part("encode_ms", lambda: encode_ms(models[0], shape, asked))
        part("read_ms", lambda: read_ms(models[0], shape))
        part("read_bytes_ms", lambda: read_bytes_ms(models[0], shape))
    return last_line(device, found)


def last_line(device: str, found: Mapping[str, float]) -> str:
    shown = {key: found.get(key) for key in SHOWN} | {
        "read_vs_encode": _ratio(found, "encode_ms", "read_bytes_ms"),
        "shared_prefix": _ratio(found, "shared_per_s", "apart_per_s"),
    }
    pairs = [f"{key}={'na' if value is None else f'{value:.2f}'}" for key, value in shown.items()]
    return f"gpu: device={device} {' '.join(pairs)}"


@contextmanager
def drawn_on(device: str, shape: Shape) -> Iterator[list[Any]]:
    """The library's loader draws random weights on the device, and reads no file; gives what it drew."""
    drawn: list[Any] = []

    def draw(folder: Path, *, dtype: torch.dtype, attn_implementation: Any, **_: Any) -> tuple[Any, Any]:
        with torch.device(device):
            model: Any = Qwen3VLForConditionalGeneration._from_config(
                AutoConfig.from_pretrained(folder), dtype=dtype, attn_implementation=attn_implementation
            )
            draw_weights(model, shape)
        speak_only(model, word_tokenizer(), {"Ġ" + word for word in words()})
        model.generation_config = generation_config(word_tokenizer())
        drawn.append(model)
        return model, {"missing_keys": [], "mismatched_keys": []}

    with patch.object(Qwen3VLForConditionalGeneration, "from_pretrained", draw):
        yield drawn


def write_settings(folder: Path, shape: Shape) -> Path:
    """A checkpoint's folder without its weights."""
    tokenizer = word_tokenizer()
    config_for(shape, tokenizer).save_pretrained(folder)
    generation_config(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    image_processor(shape.min_pixels, shape.max_pixels).save_pretrained(folder)
    return folder


@torch.inference_mode()
def encode_ms(model: Any, shape: Shape, asked: Workload) -> float:
    """The vision tower on one picture, patches on the device already."""
    picture = decode(next(iter(asked.pictures.values())))
    processor = image_processor(shape.min_pixels, shape.max_pixels)
    inputs = processor(images=[picture], return_tensors="pt").to(model.device)
    return _ms(
        lambda: model.get_image_features(inputs["pixel_values"].to(model.dtype), inputs["image_grid_thw"])
    )


def read_ms(model: Any, shape: Shape) -> float:
    """Features of a picture of 300 visual tokens from the memory tier, which is the machine's memory."""
    kept = _features(model, shape)
    return _ms(lambda: kept.to(model.device, copy=True))


def read_bytes_ms(model: Any, shape: Shape) -> float:
    """The same from the bytes that Redis holds, without the way to Redis."""
    data = save({"features": _features(model, shape)})
    return _ms(lambda: load(data)["features"].to(model.device))


def _features(model: Any, shape: Shape) -> torch.Tensor:
    levels = 1 + len(shape.vision["deepstack_visual_indexes"])
    return torch.randn(levels, 300, shape.text["hidden_size"]).to(model.dtype)


def _ms(work: Callable[[], object]) -> float:
    work()
    _finish()
    started = time.perf_counter()
    for _ in range(REPEATS):
        work()
    _finish()
    return (time.perf_counter() - started) / REPEATS * 1000


def _finish() -> None:
    """A GPU works on after a call returns."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _pass(engine: Engine, tally: Tally, asked: Workload) -> Found:
    requests = requests_of(asked)
    tally.rows = tally.places = 0
    started = time.perf_counter()
    answer_all(engine, requests)
    return Found(len(requests) / (time.perf_counter() - started), tally.fill)


def _behind(asked: Workload, *, shared: bool) -> Workload:
    """Behind a system prompt, the same for all or one for each question: then no two share a prefix."""
    questions = [
        replace(question, system=f" {words()[0 if shared else 1 + number]}")
        for number, question in enumerate(asked.questions)
    ]
    return replace(asked, questions=questions)


def _ratio(found: Mapping[str, float], over: str, under: str) -> float | None:
    return found[over] / found[under] if over in found and under in found else None
