"""How features are kept: as the tower gave them, or in 8 bits with a scale for each level and token."""

from dataclasses import dataclass
from enum import StrEnum

import torch

# Levels (pooled, then each DeepStack level) x visual tokens x hidden size.
Features = torch.Tensor
Shape = tuple[int, int, int]
MOST = 127  # symmetric: -128 is not used


class Format(StrEnum):
    NATIVE = "native"
    INT8 = "int8"


@dataclass(frozen=True)
class Kept:
    """Features in the form in which a tier keeps them; `scales` (levels, tokens, 1) for 8 bits only."""

    values: torch.Tensor
    scales: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def cpu(self) -> "Kept":
        return Kept(self.values.cpu(), None if self.scales is None else self.scales.cpu())


def keep(features: Features, form: Format) -> Kept:
    """Where the features are: on a GPU half as many bytes then leave it."""
    if form is Format.NATIVE:
        return Kept(features)
    wide = features.float()
    scales = wide.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / MOST
    return Kept((wide / scales).round_().to(torch.int8), scales)


def restore(kept: Kept, dtype: torch.dtype) -> Features:
    if kept.scales is None:
        return kept.values
    return (kept.values * kept.scales).to(dtype)
