"""Forward passes over the model: the vision tower, and one packed step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from workers.engine.features import Features
from workers.engine.layout import Packed
from workers.engine.load import QwenModel
from workers.engine.preprocess import Grid, Patches


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
