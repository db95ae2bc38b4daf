"""The process of one side of vLLM's, in an environment of its own: reads a Side as JSON, prints a Measure."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file
from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

from bench.sides import Measure, Side
from bench.workloads import Question, Workload, decode, read_workload, stranger

Features = dict[str, dict[str, torch.Tensor]]


def run(side: Side) -> Measure:
    """The workload is in memory when the clock starts, pictures as JPEG bytes, features as tensors."""
    workload = read_workload(Path(side.workload))
    features = _read_features(side, workload)
    engine = LLM(
        side.checkpoint,
        dtype=side.dtype,
        enforce_eager=True,
        block_size=32,
        max_model_len=2048,
        # Room for all pictures of the workload in the encoder's cache: the last tokens of an image lie
        # outside whole blocks, and without what the tower gave for them it would run again.
        max_num_batched_tokens=8192,
        enable_prefix_caching=True,
        enable_mm_embeds=features is not None,
        limit_mm_per_prompt={"image": 1, "video": 0},
        disable_log_stats=True,
    )
    _answer(engine, stranger(), features)
    if side.warm:
        _answer(engine, read_workload(Path(side.warm)), features)
    cpu, wall = _cpu_s(), time.perf_counter()
    texts = _answer(engine, workload, features)
    cpu, wall = _cpu_s() - cpu, time.perf_counter() - wall
    return Measure(len(texts), cpu, wall, texts)


def _answer(engine: Any, workload: Workload, features: Features | None) -> dict[str, str]:
    tokenizer = engine.get_tokenizer()
    prompts = [_prompt(tokenizer, question, workload, features) for question in workload.questions]
    sampling = [SamplingParams(temperature=0, max_tokens=each.max_tokens) for each in workload.questions]
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    pairs = zip(workload.questions, outputs, strict=True)
    return {question.id: output.outputs[0].text for question, output in pairs}


def _prompt(
    tokenizer: Any, question: Question, workload: Workload, features: Features | None
) -> dict[str, object]:
    """Images are named by their content, so that vLLM need not hash their pixels again."""
    data = workload.pictures[question.picture]
    content = [{"type": "image"}, {"type": "text", "text": question.text}]
    messages = [{"role": "user", "content": content}]
    if question.system is not None:
        messages.insert(0, {"role": "system", "content": [{"type": "text", "text": question.system}]})
    return {
        "prompt": tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
        "multi_modal_data": {"image": (features or {}).get(question.picture) or decode(data)},
        "multi_modal_uuids": {"image": [sha256(question.picture.encode() + data).hexdigest()]},
    }


def _read_features(side: Side, workload: Workload) -> Features | None:
    if side.features is None:
        return None
    dtype = getattr(torch, side.dtype)
    read = {name: load_file(Path(side.features) / f"{name}.safetensors") for name in workload.pictures}
    return {
        name: {"image_embeds": each["image_embeds"].to(dtype), "image_grid_thw": each["image_grid_thw"]}
        for name, each in read.items()
    }


def _cpu_s() -> float:
    """Of this process with all its threads, and of those that it started."""
    process = psutil.Process()
    family: Sequence[psutil.Process] = [process, *process.children(recursive=True)]
    times = [each.cpu_times() for each in family]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    print(json.dumps(asdict(run(Side(**json.load(sys.stdin))))))
