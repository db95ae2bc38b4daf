"""From logits to the next token of every row: greedy, or a draw under temperature, top_k and top_p."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from workers.engine.base import Sampling


class Draws:
    """A row's own stream of random numbers: a seed gives the same answer whoever shares its step."""

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)

    def next(self) -> float:
        return self._random.random()


@dataclass(frozen=True)
class Turn:
    """What a row brings to one choice.

    `seen` are its distinct tokens where it wants them penalised, `allowed` (vocabulary,) what its grammar
    lets it take.
    """

    sampling: Sampling
    draws: Draws
    seen: Sequence[int] = ()
    allowed: NDArray[np.bool_] | None = None


def broken_rows(logits: torch.Tensor) -> list[int]:
    """The rows whose best logit is not a finite number."""
    finite = torch.isfinite(logits.amax(dim=-1))
    return [row for row, good in enumerate(finite.tolist()) if not good]


def choose(logits: torch.Tensor, turns: Sequence[Turn]) -> list[int]:
    """One token a row from logits (rows, vocabulary)."""
    logits = _shaped(logits.float(), turns)
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, turn in enumerate(turns) if turn.sampling.temperature > 0]
    if drawn:
        numbers = logits.new_tensor([turns[row].draws.next() for row in drawn])
        tokens[drawn] = _draw(logits[drawn], [turns[row].sampling for row in drawn], numbers)
    return tokens.tolist()


def log_probabilities(
    logits: torch.Tensor, token: int, alternatives: int
) -> tuple[float, list[tuple[int, float]]]:
    """Of the token that was chosen and of the likeliest ones, from a row of the model's own logits."""
    shares = logits.float().log_softmax(dim=-1)
    top = shares.topk(alternatives)
    return float(shares[token]), list(zip(top.indices.tolist(), top.values.tolist(), strict=True))


def _shaped(logits: torch.Tensor, turns: Sequence[Turn]) -> torch.Tensor:
    """Penalties and grammars applied, on a copy where there are any."""
    if any(turn.seen or turn.allowed is not None for turn in turns):
        logits = logits.clone()
    for row, turn in enumerate(turns):
        if turn.seen:
            _penalise(logits[row], turn.seen, turn.sampling.repetition_penalty)
        if turn.allowed is not None:
            forbidden = torch.from_numpy(~turn.allowed).to(logits.device)
            logits[row].masked_fill_(forbidden, float("-inf"))
    return logits


def _penalise(logits: torch.Tensor, seen: Sequence[int], penalty: float) -> None:
    """As the library does: a positive logit is divided, a negative one multiplied."""
    index = torch.tensor(seen, device=logits.device)
    before = logits[index]
    logits[index] = torch.where(before < 0, before * penalty, before / penalty)


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
