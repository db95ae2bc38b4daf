"""One group of requests from the vision tower to their answers: rows start together and leave one by one."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from app.errors import FatalWork
from workers.engine import forward
from workers.engine.base import Observer
from workers.engine.features import FeatureCache
from workers.engine.forward import Running
from workers.engine.generation import Generation
from workers.engine.load import Checkpoint
from workers.engine.prepare import Encoding, Prepared
from workers.engine.sampling import broken_rows, choose


@dataclass(frozen=True)
class Tools:
    """What every group needs; one per engine."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    cache: FeatureCache
    observer: Observer
    row_limit: int


class Group:
    """Rows that are prefilled together and leave one by one; each future is settled as its row leaves."""

    def __init__(self, rows: Sequence[Prepared], *, tools: Tools) -> None:
        self._tools = tools
        self._model = tools.checkpoint.model
        self._rows = [(row, self._generation(row)) for row in rows]
        self._generated = 0

    def run(self) -> None:
        """Raises what the model raises; rows that have left keep their answers."""
        self._encode_images()
        running, tokens = self._prefill()
        self._decode(running, tokens)

    def _encode_images(self) -> None:
        """The vision tower, once for each distinct image that no tier had."""
        encodings = {encoding.key: encoding for row, _ in self._rows for encoding in row.encodings}
        missing = [
            (encoding, encoding.patches) for encoding in encodings.values() if encoding.patches is not None
        ]
        if not missing:
            return
        started = time.perf_counter()
        pictures = [(patches, encoding.grid) for encoding, patches in missing]
        for (encoding, _), features in zip(missing, forward.encode(self._model, pictures), strict=True):
            encoding.encoded(features)
            self._tools.cache.write(encoding.key, features.cpu())
        self._tools.observer.encoded(
            images=len(missing),
            visual_tokens=sum(encoding.grid.tokens for encoding, _ in missing),
            seconds=time.perf_counter() - started,
        )

    def _prefill(self) -> tuple[Running, list[int]]:
        """The running rows and the first token of each that goes on."""
        prompts = [row.prompt for row, _ in self._rows]
        total = sum(len(prompt) for prompt in prompts)
        self._report_start(total, padding=max(map(len, prompts)) * len(prompts) - total)
        started = time.perf_counter()
        features = [_features(encoding) for row, _ in self._rows for encoding in row.encodings]
        running, logits = forward.prefill(
            self._model, prompts, features, pad_id=self._tools.checkpoint.pad_id
        )
        tokens = self._accept(running, logits)
        self._tools.observer.prefilled(seconds=time.perf_counter() - started, tokens=total)
        return running, tokens

    def _decode(self, running: Running, tokens: list[int]) -> None:
        started = time.perf_counter()
        steps = 0
        while tokens:
            steps += 1
            tokens = self._accept(running, forward.step(self._model, running, tokens))
        seconds = time.perf_counter() - started
        self._tools.observer.decoded(seconds=seconds, steps=steps, tokens=self._generated)

    def _accept(self, running: Running, logits: torch.Tensor) -> list[int]:
        """Give each row its next token and let those that are done leave; the tokens of those that stay."""
        self._generated += len(self._rows)
        broken = set(broken_rows(logits))
        generations = [generation for _, generation in self._rows]
        tokens = choose(
            logits,
            [generation.sampling for generation in generations],
            [generation.draws for generation in generations],
        )
        staying = [
            place for place, token in enumerate(tokens) if not self._settle(place, token, place in broken)
        ]
        if 0 < len(staying) < len(tokens):
            running.keep(staying)
        self._rows = [self._rows[place] for place in staying]
        return [tokens[place] for place in staying]

    def _settle(self, place: int, token: int, broken: bool) -> bool:
        """True when the row has its answer or its error."""
        row, generation = self._rows[place]
        if broken:
            row.future.set_exception(FatalWork("nan_logits", "the model's output was not a number"))
        elif generation.accept(token):
            row.future.set_result(generation.answer())
        return row.future.done()

    def _report_start(self, prompt_tokens: int, *, padding: int) -> None:
        self._tools.observer.group_started(
            rows=len(self._rows),
            row_limit=self._tools.row_limit,
            prompt_tokens=prompt_tokens,
            padding_tokens=padding,
        )

    def _generation(self, row: Prepared) -> Generation:
        return Generation(
            sampling=row.request.sampling,
            prompt_tokens=len(row.prompt),
            tokenizer=self._tools.tokenizer,
            end_ids=self._tools.checkpoint.end_ids,
        )


def _features(encoding: Encoding) -> torch.Tensor:
    assert encoding.features is not None
    return encoding.features
