"""Hands on a model's passes: watch them, break them, hold them until a test has everything in place."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from tests.requests import ask
from tests.waiting import eventually
from workers.engine.base import Answer, Request
from workers.engine.load import Checkpoint
from workers.engine.transformers import TransformersEngine

Pass = dict[str, Any]  # what the model is called with


def before_pass(checkpoint: Checkpoint, act: Callable[[Pass], None]) -> None:
    """Have the model call `act` before every pass."""

    def hook(module: torch.nn.Module, args: Any, kwargs: Pass) -> None:
        act(kwargs)

    checkpoint.model.register_forward_pre_hook(hook, with_kwargs=True)


def after_pass(checkpoint: Checkpoint, act: Callable[[Pass, torch.Tensor], None]) -> RemovableHandle:
    """Have the model call `act` with the logits (rows, vocabulary) of every pass, which it may change."""

    def hook(module: torch.nn.Module, args: Any, kwargs: Pass, output: Any) -> None:
        act(kwargs, output.logits[0])

    return checkpoint.model.register_forward_hook(hook, with_kwargs=True)


def held(checkpoint: Checkpoint) -> threading.Event:
    """The model waits for this before every pass."""
    gate = threading.Event()

    def wait_for_gate(_: Pass) -> None:
        assert gate.wait(60)

    before_pass(checkpoint, wait_for_gate)
    return gate


BUSY = ask("busy", max_tokens=2)


@contextmanager
def while_busy(
    engine: TransformersEngine, checkpoint: Checkpoint, busy: Request = BUSY
) -> Iterator[list[Future[Answer]]]:
    """What is submitted here and put into the list joins in one step; its first is the row that runs."""
    entered, gate = threading.Event(), threading.Event()

    def wait_for_gate(_: Pass) -> None:
        entered.set()
        assert gate.wait(60)

    before_pass(checkpoint, wait_for_gate)
    futures = [engine.submit(busy)]
    assert entered.wait(60)
    yield futures
    eventually(lambda: len(engine._room) == len(futures) - 1)
    gate.set()


def submit_together(
    engine: TransformersEngine, checkpoint: Checkpoint, requests: Sequence[Request]
) -> list[Future[Answer]]:
    """All in one step, at the side of a row that runs."""
    with while_busy(engine, checkpoint) as futures:
        futures += [engine.submit(request) for request in requests]
    return futures[1:]


def joining_with(checkpoint: Checkpoint, letter: str, called: Pass) -> torch.Tensor:
    """The numbers of the rows of a step whose prompts' tails, computed in it, have this letter."""
    tails = called["layout"].tails
    wanted = called["input_ids"][0] == checkpoint.tokenizer.get_vocab()[letter]
    if tails is None:
        return torch.zeros(0, dtype=torch.long)
    return wanted[tails.padded].any(dim=1).nonzero()[:, 0]
