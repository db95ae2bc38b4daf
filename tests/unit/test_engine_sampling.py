"""The next token: greedy by default, else a draw whose odds are the library's."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from workers.engine.base import Sampling
from workers.engine.sampling import Draws, broken_rows, choose

SIZE = 12


def logits(seed: int, rows: int = 1) -> torch.Tensor:
    return torch.randn((rows, SIZE), generator=torch.Generator().manual_seed(seed)) * 3


def library_odds(row: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    ids: Any = torch.zeros((1, 1), dtype=torch.long)
    row = TemperatureLogitsWarper(sampling.temperature)(ids, row)
    row = TopKLogitsWarper(sampling.top_k)(ids, row) if sampling.top_k else row
    return TopPLogitsWarper(sampling.top_p)(ids, row).softmax(dim=-1)[0]


def test_no_temperature_takes_the_best() -> None:
    rows = logits(1, rows=3)
    draws = [Draws(None) for _ in range(3)]
    assert choose(rows, [Sampling(1)] * 3, draws) == rows.argmax(dim=-1).tolist()


@settings(deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.2, 3),
    st.sampled_from([0, 1, 2, 5, SIZE, 40]),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_only_tokens_that_the_library_would_draw_are_drawn(
    seed: int, temperature: float, top_k: int, top_p: float
) -> None:
    sampling = Sampling(1, temperature=temperature, top_k=top_k, top_p=top_p)
    row = logits(seed)
    drawn = set(choose(row.expand(60, -1), [sampling] * 60, [Draws(number) for number in range(60)]))
    assert drawn <= set(library_odds(row, sampling).nonzero()[:, 0].tolist())


def test_tokens_are_drawn_as_often_as_the_library_would() -> None:
    sampling, count = Sampling(1, temperature=2.0, top_k=8, top_p=0.7), 20_000
    row, draws = logits(5), Draws(3)
    tokens = torch.tensor(choose(row.expand(count, -1), [sampling] * count, [draws] * count))
    shares = torch.bincount(tokens, minlength=SIZE) / count
    assert (shares - library_odds(row, sampling)).abs().max() < 0.015


def test_a_seed_decides_whoever_shares_the_step() -> None:
    hot = Sampling(1, temperature=2.0)
    rows = logits(7, rows=4)
    alone = choose(rows[2:3], [hot], [Draws(5)])
    together = choose(rows, [Sampling(1), hot, hot, hot], [Draws(1), Draws(2), Draws(5), Draws(3)])
    assert together[2] == alone[0]


def test_a_top_p_of_nothing_still_takes_the_best() -> None:
    row = logits(9)
    assert choose(row, [Sampling(1, temperature=1.0, top_p=0.0)], [Draws(1)]) == [int(row.argmax())]


def test_rows_without_numbers_are_found() -> None:
    rows = logits(1, rows=4)
    rows[1, 3] = float("nan")
    rows[2] = float("inf")
    rows[3, :5] = float("-inf")
    assert broken_rows(rows) == [1, 2]
