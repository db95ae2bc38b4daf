"""Forward passes over the model: the vision tower, one packed step, and one of a single row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from workers.engine.features import Features
from workers.engine.layout import Packed
from workers.engine.load import QwenModel
from workers.engine.preprocess import Grid, Patches
from workers.engine.prompt import Prompt


@dataclass(frozen=True)
class Plain:
    """What one row feeds: its prompt with its images' features, or the token that it chose last."""

    ids: NDArray[np.int64]  # (tokens,)
    positions: NDArray[np.int64]  # (4, tokens): text, time, height, width
    features: Sequence[Features] = ()
    is_prompt: bool = False

    @classmethod
    def of_prompt(cls, prompt: Prompt, features: Sequence[Features]) -> "Plain":
        positions = np.concatenate([np.arange(len(prompt))[None], prompt.positions])
        return cls(prompt.ids, positions, features, is_prompt=True)

    @classmethod
    def of_token(cls, token: int, prompt: Prompt, *, number: int) -> "Plain":
        """The answer's token of this number, from 0."""
        rope = prompt.next_position + number
        return cls(np.array([token]), np.array([[len(prompt) + number], [rope], [rope], [rope]]))


def encode(model: QwenModel, pictures: Sequence[tuple[Patches, Grid]]) -> list[Features]:
    """Run the vision tower once over some pictures."""
    patches = torch.from_numpy(np.concatenate([patches for patches, _ in pictures]))
    grids = torch.tensor([[1, grid.height, grid.width] for _, grid in pictures])
    tower: Any = model.get_image_features  # its annotation knows neither plain tensors nor its output
    output = tower(patches.to(model.device), grids.to(model.device))
    levels = [output.pooler_output, *output.deepstack_features]
    return [torch.stack([level[number] for level in levels]) for number in range(len(pictures))]


def step(model: QwenModel, packed: Packed) -> torch.Tensor:
    """Run the packed tokens; the logits (rows, vocabulary) of each row's next token.

    Positions are passed always: without them the model reads state that an earlier call left behind.
    """
    output = model(
        input_ids=packed.ids,
        position_ids=packed.positions,
        mm_encoder_outputs=_encoder_outputs(packed.features, model.device),
        use_cache=False,
        logits_to_keep=packed.keep,
        layout=packed.layout,
    )
    return output.logits[0]


def plain_step(model: QwenModel, fed: Plain, cache: DynamicCache) -> torch.Tensor:
    """Run one row by the library's own attention; the logits (1, vocabulary) of its next token.

    The cache takes its keys and values. The model must have been loaded with LIBRARY_ATTENTION.
    """
    output = model(
        input_ids=torch.from_numpy(fed.ids)[None].to(model.device),
        position_ids=torch.from_numpy(fed.positions)[:, None].to(model.device),
        mm_encoder_outputs=_encoder_outputs(fed.features, model.device),
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[0]


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
