"""The yardstick: the library's own `generate()` and processor, job after job or batch after batch."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import PIL.Image
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

from workers.engine.base import Answer, ImagePart, Note, Part, Request, Usage
from workers.engine.repetition import repeats

# On a CPU, SDPA with one query token is 8 times slower in bf16 than plain products.
_HALF_ATTENTION = {"text_config": "eager", "vision_config": "sdpa"}


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

    def __init__(self, folder: Path, *, dtype: torch.dtype = torch.float32) -> None:
        self.processor: Any = ImageProcessor.from_pretrained(folder)
        self.processor.tokenizer.padding_side = "left"  # right padding is silently wrong
        self.model: Any = AutoModelForImageTextToText.from_pretrained(
            folder,
            config=AutoConfig.from_pretrained(folder),
            dtype=dtype,
            attn_implementation="sdpa" if dtype == torch.float32 else _HALF_ATTENTION,
        ).eval()

    def answer(self, request: Request) -> Answer:
        """Raises ValueError for a request that `generate()` would not answer greedily."""
        return self.answer_batch([request])[0]

    def answer_batches(self, requests: Sequence[Request], size: int) -> list[Answer]:
        """So many at a time, padded on the left; each batch runs until its longest answer is done."""
        starts = range(0, len(requests), size)
        return [answer for start in starts for answer in self.answer_batch(requests[start : start + size])]

    @torch.inference_mode()
    def answer_batch(self, requests: Sequence[Request]) -> list[Answer]:
        """Raises ValueError for a request that `generate()` would not answer greedily."""
        if any(request.sampling.temperature > 0 or request.sampling.stop for request in requests):
            raise ValueError("only greedy requests without stop strings can be compared")
        inputs = self.inputs(requests)
        longest = max(request.sampling.max_tokens for request in requests)
        output = self.model.generate(**inputs, max_new_tokens=longest, do_sample=False, use_cache=True)
        generated = output[:, inputs["input_ids"].shape[1] :].tolist()
        prompts = inputs["attention_mask"].sum(1).tolist()
        rows = zip(requests, generated, prompts, strict=True)
        return [
            self._answer(tokens[: request.sampling.max_tokens], prompt) for request, tokens, prompt in rows
        ]

    def inputs(self, requests: Sequence[Request]) -> dict[str, torch.Tensor]:
        """What the library's processor makes of the requests."""
        return self.processor.apply_chat_template(
            [_messages(request) for request in requests],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )

    @torch.inference_mode()
    def write_features(self, pictures: Mapping[str, PIL.Image.Image], folder: Path) -> Path:
        """A file for each picture with what the tower gives for it, DeepStack levels beside one another."""
        folder.mkdir(parents=True)
        for name, picture in pictures.items():
            inputs = self.processor.image_processor(images=[picture], return_tensors="pt")
            grid = inputs["image_grid_thw"]
            output = self.model.model.get_image_features(inputs["pixel_values"], grid, return_dict=True)
            levels = [output.pooler_output, *output.deepstack_features]
            embeds = torch.cat([pictures_of_level[0] for pictures_of_level in levels], dim=-1)
            save_file({"image_embeds": embeds, "image_grid_thw": grid}, folder / f"{name}.safetensors")
        return folder

    def _answer(self, tokens: list[int], prompt: int) -> Answer:
        """Up to its own end; what follows is the padding of a row that waits for longer ones."""
        ends = [place for place, token in enumerate(tokens) if token in self.end_ids]
        tokens = tokens[: ends[0] + 1] if ends else tokens
        text = self.processor.decode(tokens, skip_special_tokens=True)
        notes = () if text.strip() else (Note.EMPTY,)
        if not ends and repeats(tokens):
            notes = (*notes, Note.REPETITION)
        return Answer(text, "stop" if ends else "length", Usage(prompt, len(tokens)), notes=notes)

    @property
    def end_ids(self) -> list[int]:
        found = self.model.generation_config.eos_token_id
        return found if isinstance(found, list) else [found]


def _messages(request: Request) -> list[dict[str, object]]:
    return [
        {"role": turn.role, "content": [_part(part, request) for part in turn.parts]}
        for turn in request.turns
    ]


def _part(part: Part, request: Request) -> dict[str, object]:
    if isinstance(part, ImagePart):
        return {"type": "image", "image": PIL.Image.fromarray(request.images[part.index].load())}
    return {"type": "text", "text": part.text}
