"""From logits to the next token of every row: greedy, or a draw under temperature, top_k and top_p."""

import random
from collections.abc import Sequence

import torch

from workers.engine.base import Sampling


class Draws:
    """A row's own stream of random numbers: a seed gives the same answer whoever shares its step."""

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)

    def next(self) -> float:
        return self._random.random()


def broken_rows(logits: torch.Tensor) -> list[int]:
    """The rows whose best logit is not a finite number."""
    finite = torch.isfinite(logits.amax(dim=-1))
    return [row for row, good in enumerate(finite.tolist()) if not good]


def choose(logits: torch.Tensor, settings: Sequence[Sampling], draws: Sequence[Draws]) -> list[int]:
    """One token a row from logits (rows, vocabulary)."""
    logits = logits.float()
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, sampling in enumerate(settings) if sampling.temperature > 0]
    if drawn:
        numbers = logits.new_tensor([draws[row].next() for row in drawn])
        tokens[drawn] = _draw(logits[drawn], [settings[row] for row in drawn], numbers)
    return tokens.tolist()


def _draw(logits: torch.Tensor, settings: Sequence[Sampling], numbers: torch.Tensor) -> torch.Tensor:
    """The token at which the cumulated probability, most likely token first, passes a row's random number."""
    temperature = logits.new_tensor([sampling.temperature for sampling in settings])[:, None]
    values, order = (logits / temperature).sort(dim=-1, descending=True, stable=True)
    shares = _kept(values, settings).cumsum(dim=-1)
    ranks = (shares <= numbers[:, None] * shares[:, -1:]).sum(dim=-1, keepdim=True)
    last = (shares < shares[:, -1:]).sum(dim=-1, keepdim=True)
    return order.gather(1, torch.minimum(ranks, last))[:, 0]


def _kept(values: torch.Tensor, settings: Sequence[Sampling]) -> torch.Tensor:
    """Probabilities of sorted logits with those outside top_k, then outside top_p, set to 0.

    A top_p of 0 leaves none, and then the likeliest is drawn.
    """
    size = values.shape[-1]
    rank = torch.arange(size, device=values.device)
    top_k = torch.tensor([sampling.top_k or size for sampling in settings], device=values.device)[:, None]
    top_p = values.new_tensor([sampling.top_p for sampling in settings])[:, None]
    shares = values.masked_fill(rank >= top_k, float("-inf")).softmax(dim=-1)
    before = shares.cumsum(dim=-1) - shares
    return shares.masked_fill(before >= top_p, 0.0)
