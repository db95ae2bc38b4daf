"""Forward passes over the model: the vision tower, the prefill of a group, one step of its running rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import Cache
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from workers.engine.features import Features
from workers.engine.load import QwenModel
from workers.engine.preprocess import Grid, Patches
from workers.engine.prompt import Prompt


@dataclass
class Running:
    """The rows that decode together, as the model needs them; row order is the caller's."""

    cache: Cache
    mask: torch.Tensor  # (rows, cached tokens): 1 where a row has a token, 0 where it is padded
    lengths: torch.Tensor  # (rows,): tokens so far without padding, which is the next text position
    positions: torch.Tensor  # (rows,): the next rope position; an image takes fewer of these than tokens

    def keep(self, rows: Sequence[int]) -> None:
        """Let all other rows leave."""
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]
        self.lengths = self.lengths[index]
        self.positions = self.positions[index]


def encode(model: QwenModel, pictures: Sequence[tuple[Patches, Grid]]) -> list[Features]:
    """Run the vision tower once over some pictures."""
    patches = torch.from_numpy(np.concatenate([patches for patches, _ in pictures]))
    grids = torch.tensor([[1, grid.height, grid.width] for _, grid in pictures])
    tower: Any = model.get_image_features  # its annotation knows neither plain tensors nor its output
    output = tower(patches.to(model.device), grids.to(model.device))
    levels = [output.pooler_output, *output.deepstack_features]
    return [torch.stack([level[number] for level in levels]) for number in range(len(pictures))]


def prefill(
    model: QwenModel, prompts: Sequence[Prompt], features: Sequence[Features], *, pad_id: int
) -> tuple[Running, torch.Tensor]:
    """Run the prompts, padded on the left; `features` in the order of their places, row after row.

    Gives the running rows and the logits (rows, vocabulary) of their first new tokens. Positions are passed
    always: without them the model reads state that an earlier call left behind.
    """
    ids, mask, positions = _pad(prompts, pad_id)
    output = model(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        position_ids=positions.to(model.device),
        mm_encoder_outputs=_encoder_outputs(features, model.device),
        use_cache=True,
        logits_to_keep=1,
    )
    running = Running(
        cache=output.cache,
        mask=mask.to(model.device),
        lengths=torch.tensor([len(prompt) for prompt in prompts], device=model.device),
        positions=torch.tensor([prompt.next_position for prompt in prompts], device=model.device),
    )
    return running, output.logits[:, -1]


def step(model: QwenModel, running: Running, tokens: Sequence[int]) -> torch.Tensor:
    """Give every running row its newest token; the logits (rows, vocabulary) of the one after."""
    running.mask = torch.cat([running.mask, running.mask.new_ones(len(tokens), 1)], dim=1)
    output = model(
        input_ids=torch.tensor(tokens, device=model.device)[:, None],
        attention_mask=running.mask,
        position_ids=torch.stack([running.lengths, *[running.positions] * 3])[:, :, None],
        cache=running.cache,
        use_cache=True,
        logits_to_keep=1,
    )
    running.cache = output.cache
    running.lengths = running.lengths + 1
    running.positions = running.positions + 1
    return output.logits[:, -1]


def _pad(prompts: Sequence[Prompt], pad_id: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids (rows, longest), mask likewise, positions (4, rows, longest): text, time, height, width."""
    rows, longest = len(prompts), max(len(prompt) for prompt in prompts)
    ids = torch.full((rows, longest), pad_id)
    mask = torch.zeros((rows, longest), dtype=torch.long)
    positions = torch.zeros((4, rows, longest), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        place = slice(longest - len(prompt), longest)
        ids[row, place] = torch.from_numpy(prompt.ids)
        mask[row, place] = 1
        positions[0, row, place] = torch.arange(len(prompt))
        positions[1:, row, place] = torch.from_numpy(prompt.positions)
    return ids, mask, positions


def _encoder_outputs(
    features: Sequence[Features], device: torch.device
) -> dict[str, BaseModelOutputWithDeepstackFeatures] | None:
    if not features:
        return None
    levels = list(zip(*(picture.to(device).unbind() for picture in features), strict=True))
    output = BaseModelOutputWithDeepstackFeatures(
        pooler_output=levels[0],  # pyright: ignore[reportArgumentType]  # the library itself hands a tuple
        deepstack_features=levels[1:],  # pyright: ignore[reportArgumentType]
    )
    return {"image": output}
