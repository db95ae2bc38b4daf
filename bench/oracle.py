"""The yardstick: the library's own `generate()` and processor, job after job."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import PIL.Image
import torch
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

from workers.engine.base import Answer, ImagePart, Part, Request, Usage


class ImageProcessor(Qwen3VLProcessor):
    """The library finds its parts by this signature; without videos it needs no torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


def one_by_one(folder: Path, requests: Sequence[Request]) -> tuple[list[Answer], float]:
    """Greedy answers to the requests in fp32, and the seconds that they took without loading the model.

    Every job pays for its own preprocessing and its own run, as a script around `generate()` would.
    """
    oracle = Oracle(folder)
    started = time.perf_counter()
    answers = [oracle.answer(request) for request in requests]
    return answers, time.perf_counter() - started


class Oracle:
    """A checkpoint behind the library's own code path; what the engine's answers are compared with."""

    def __init__(self, folder: Path) -> None:
        self.processor: Any = ImageProcessor.from_pretrained(folder)
        self.model: Any = AutoModelForImageTextToText.from_pretrained(
            folder, config=AutoConfig.from_pretrained(folder), dtype=torch.float32
        ).eval()

    @torch.inference_mode()
    def answer(self, request: Request) -> Answer:
        """Raises ValueError for a request that `generate()` would not answer greedily."""
        if request.sampling.temperature > 0 or request.sampling.stop:
            raise ValueError("only greedy requests without stop strings can be compared")
        inputs = self.inputs(request)
        output = self.model.generate(
            **inputs, max_new_tokens=request.sampling.max_tokens, do_sample=False, use_cache=True
        )
        prompt = inputs["input_ids"].shape[1]
        tokens = output[0, prompt:].tolist()
        ended = tokens[-1] in self.end_ids
        text = self.processor.decode(tokens, skip_special_tokens=True)
        return Answer(text, "stop" if ended else "length", Usage(prompt, len(tokens)))

    def inputs(self, request: Request) -> dict[str, torch.Tensor]:
        """What the library's processor makes of the request."""
        messages = [
            {"role": turn.role, "content": [_part(part, request) for part in turn.parts]}
            for turn in request.turns
        ]
        return self.processor.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )

    @property
    def end_ids(self) -> list[int]:
        found = self.model.generation_config.eos_token_id
        return found if isinstance(found, list) else [found]


def _part(part: Part, request: Request) -> dict[str, object]:
    if isinstance(part, ImagePart):
        return {"type": "image", "image": PIL.Image.fromarray(request.images[part.index].load())}
    return {"type": "text", "text": part.text}
