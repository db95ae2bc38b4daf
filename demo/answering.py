"""Answers questions with a saved checkpoint through transformers alone, a few rows at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

MOST_TOKENS = 48  # a JSON answer with all six keys takes 42


class StillsProcessor(Qwen3VLProcessor):
    """Qwen3-VL's processor without videos, whose processor asks for torchvision."""

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None) -> None:
        self.video_processor = None
        super().__init__(image_processor, tokenizer, chat_template=chat_template)


class Answerer:
    """A loaded checkpoint."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        # The library's stubs know neither generate() nor the keywords of a processor.
        self._model: Any = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=dtype)
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._processor: Any = StillsProcessor.from_pretrained(folder)

    def answer(self, asked: Sequence[tuple[Image.Image, str]]) -> list[str]:
        """One greedy answer for every picture and question, in order."""
        inputs = self._processor(
            text=[self._prompt(question) for _, question in asked],
            images=[picture for picture, _ in asked],
            padding=True,
            return_tensors="pt",
        )
        written = self._model.generate(**inputs, max_new_tokens=MOST_TOKENS)
        fresh = written[:, inputs["input_ids"].shape[1] :]
        return self._tokenizer.batch_decode(fresh, skip_special_tokens=True)

    def _prompt(self, question: str) -> str:
        content = [{"type": "image"}, {"type": "text", "text": question}]
        message = {"role": "user", "content": content}
        return self._tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
