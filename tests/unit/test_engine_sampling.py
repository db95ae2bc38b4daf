"""The next token: greedy by default, else a draw whose odds are the library's."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from workers.engine.base import Sampling
from workers.engine.sampling import Draws, Turn, broken_rows, choose, log_probabilities

SIZE = 12


def logits(seed: int, rows: int = 1) -> torch.Tensor:
    return torch.randn((rows, SIZE), generator=torch.Generator().manual_seed(seed)) * 3


def turns(sampling: Sampling, count: int) -> list[Turn]:
    """Rows of the same settings with seeds of their own."""
    return [Turn(sampling, Draws(seed)) for seed in range(count)]


def library_odds(row: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    ids: Any = torch.zeros((1, 1), dtype=torch.long)
    row = TemperatureLogitsWarper(sampling.temperature)(ids, row)
    row = TopKLogitsWarper(sampling.top_k)(ids, row) if sampling.top_k else row
    return TopPLogitsWarper(sampling.top_p)(ids, row).softmax(dim=-1)[0]


def test_no_temperature_takes_the_best() -> None:
    rows = logits(1, rows=3)
    assert choose(rows, turns(Sampling(1), 3)) == rows.argmax(dim=-1).tolist()


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
    drawn = set(choose(row.expand(60, -1), turns(sampling, 60)))
    assert drawn <= set(library_odds(row, sampling).nonzero()[:, 0].tolist())


def test_tokens_are_drawn_as_often_as_the_library_would() -> None:
    sampling, count = Sampling(1, temperature=2.0, top_k=8, top_p=0.7), 20_000
    row = logits(5)
    tokens = torch.tensor(choose(row.expand(count, -1), [Turn(sampling, Draws(3))] * count))
    shares = torch.bincount(tokens, minlength=SIZE) / count
    assert (shares - library_odds(row, sampling)).abs().max() < 0.015


def test_a_seed_decides_whoever_shares_the_step() -> None:
    hot = Sampling(1, temperature=2.0)
    rows = logits(7, rows=4)
    alone = choose(rows[2:3], [Turn(hot, Draws(5))])
    settings = zip([Sampling(1), hot, hot, hot], [1, 2, 5, 3], strict=True)
    together = choose(rows, [Turn(sampling, Draws(seed)) for sampling, seed in settings])
    assert together[2] == alone[0]


def test_a_top_p_of_nothing_still_takes_the_best() -> None:
    row = logits(9)
    assert choose(row, turns(Sampling(1, temperature=1.0, top_p=0.0), 1)) == [int(row.argmax())]


def test_rows_without_numbers_are_found() -> None:
    rows = logits(1, rows=4)
    rows[1, 3] = float("nan")
    rows[2] = float("inf")
    rows[3, :5] = float("-inf")
    assert broken_rows(rows) == [1, 2]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, SIZE - 1), min_size=1), st.floats(0.5, 2))
def test_a_penalty_is_the_library_s_and_touches_its_row_only(
    seed: int, seen: list[int], penalty: float
) -> None:
    rows = logits(seed, rows=2)
    before = rows.clone()
    penalised = Turn(Sampling(1, repetition_penalty=penalty), Draws(1), seen=tuple(dict.fromkeys(seen)))
    chosen = choose(rows, [penalised, Turn(Sampling(1), Draws(1))])
    ids: Any = torch.tensor([seen])
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(ids, rows[:1].clone())
    assert chosen == [int(theirs.argmax()), int(before[1].argmax())]
    assert torch.equal(rows, before)


def test_what_a_grammar_forbids_is_never_taken_by_its_row() -> None:
    rows = logits(3).expand(40, -1)
    best = int(rows[0].argmax())
    allowed = np.arange(SIZE) != best
    held = [Turn(Sampling(1, temperature=temperature), Draws(1), (), allowed) for temperature in (0, 5)]
    tokens = choose(rows, [*held * 19, *turns(Sampling(1), 2)])
    assert best not in tokens[:-2]
    assert tokens[-2:] == [best, best]


def test_log_probabilities_are_those_of_the_model_s_own_logits() -> None:
    row = logits(4)[0]
    chosen, top = log_probabilities(row, 5, 3)
    shares = row.log_softmax(dim=-1)
    assert chosen == float(shares[5])
    assert top == sorted(enumerate(shares.tolist()), key=lambda pair: -pair[1])[:3]
