"""The rows that run, step after step: who has joined is computed, gets its tokens, and leaves when done."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from app.errors import FatalWork, WorkError
from workers.engine import forward
from workers.engine.base import Answer, Observer, Times
from workers.engine.encoder import Encoder
from workers.engine.failures import (
    fail,
    is_out_of_memory,
    job_timeout,
    let_go,
    out_of_memory,
    step_failed,
)
from workers.engine.generation import Generation
from workers.engine.grammar import Grammars
from workers.engine.layout import Build, pack
from workers.engine.load import Checkpoint
from workers.engine.prefixes import PrefixCache
from workers.engine.prepare import Prepared
from workers.engine.rows import Row
from workers.engine.running import Running
from workers.engine.sampling import broken_rows, choose
from workers.engine.scheduler import Budget, Room
from workers.engine.slots import Slots

Allowed = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Tools:
    """What every step needs; one per engine."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    grammars: Grammars
    encoder: Encoder
    prefixes: PrefixCache
    slots: Slots
    observer: Observer
    kv_bytes: int
    on_device_lost: Callable[[], None]


class Steps:
    """One thread calls `run` again and again; each call is one forward pass and settles the rows that end."""

    def __init__(self, tools: Tools, budget: Budget) -> None:
        self._tools = tools
        self._model = tools.checkpoint.model
        self._slots = tools.slots
        self._prefixes = tools.prefixes
        self._running = Running(slots=tools.slots, prefixes=tools.prefixes)
        self._budget = budget
        self._lowered = False  # in this call of `run`
        self._grammar_pool = ThreadPoolExecutor(1, thread_name_prefix="engine-grammar")

    def __len__(self) -> int:
        return len(self._running)

    def close(self) -> None:
        self._grammar_pool.shutdown()

    def abandon(self, error: WorkError) -> None:
        """Fail the rows that are left when no further step will come."""
        for row in self._running.all():
            self._running.leave(row)
            fail(row.prepared.future, error)

    def room(self) -> Room:
        """What the next step can take beside the rows that run."""
        rows = len(self._running)
        held = self._prefixes.held - self._prefixes.kept
        return Room(
            running=rows,
            rows=max(0, self._budget.rows - rows),
            tokens=max(0, self._budget.tokens - rows),
            kv_tokens=max(0, (self._tools.kv_bytes - held) // self._slots.shape.token_bytes),
        )

    def run(self, joining: Sequence[Prepared]) -> None:
        """One step; whatever fails is in the futures of those that it failed for."""
        self._lowered = False
        now = time.monotonic()
        for row in self._running.all():
            if row.prepared.future.cancelled() or row.prepared.request.is_late(now):
                self._running.leave(row)
                fail(row.prepared.future, job_timeout())
        entering = [self._enter(prepared) for prepared in joining]
        first, *others = _parts(self._running.all(), self._budget.rows)
        self._attempt(first, [row for row in entering if row is not None])
        for part in others:  # they joined when there was more memory
            self._attempt(part, [])

    def _enter(self, prepared: Prepared) -> Row | None:
        try:
            generation = Generation.of(
                prepared.request,
                prepared.prompt,
                tokenizer=self._tools.tokenizer,
                end_ids=self._tools.checkpoint.end_ids,
                grammars=self._tools.grammars,
            )
        except Exception as error:
            self._prefixes.release(prepared.pin)
            fail(prepared.future, error if isinstance(error, WorkError) else step_failed(error))
            return None
        generation.notes += prepared.notes
        return Row(prepared, generation, pin=prepared.pin, joined=time.monotonic())

    def _attempt(self, decoding: Sequence[Row], joining: Sequence[Row]) -> None:
        """Run a step; on failure its halves, down to rows alone, so that a fault costs its own row only."""
        if not decoding and not joining:
            return
        error = self._try(decoding, joining)
        if error is None:
            return
        if len(decoding) + len(joining) == 1:
            row = [*decoding, *joining][0]
            self._running.leave(row)
            fail(row.prepared.future, error)
        elif decoding and joining:
            self._attempt(decoding, [])
            self._attempt([], joining)
        else:
            for half in _halves(decoding):
                self._attempt(half, [])
            for half in _halves(joining):
                self._attempt([], half)

    def _try(self, decoding: Sequence[Row], joining: Sequence[Row]) -> WorkError | None:
        """The error as a value: one that is still being handled would keep the step's tensors alive.

        Until the model has run nothing is changed that a second try would not change in the same way.
        """
        builds: list[Build] = []
        started = time.perf_counter()
        try:
            builds = self._running.enter(joining)
            self._tools.encoder.encode([build.source for build in builds])
            logits, rows, allowed = self._forward(builds, joining, decoding)
        except torch.AcceleratorError as raised:
            self._tools.on_device_lost()  # after such an error every later step would fail, too
            error = step_failed(raised)
        except Exception as raised:
            let_go(raised)
            wanted = is_out_of_memory(raised)
            error = self._no_memory(builds, joining, decoding) if wanted else step_failed(raised)
        else:
            self._running.joined(builds, joining)
            self._budget.passed()
            new_tokens = _new_tokens(builds, joining)
            self._settle(logits, rows, allowed)
            self._stepped(joining, decoding, new_tokens, time.perf_counter() - started)
            return None
        self._running.undo(builds, joining)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return error

    def _forward(
        self, builds: Sequence[Build], joining: Sequence[Row], decoding: Sequence[Row]
    ) -> tuple[torch.Tensor, list[Row], list[Future[Allowed]]]:
        """Grammars are asked on a thread of their own while the model runs."""
        for row in decoding:
            self._running.make_place(row)
        packed = pack(builds=builds, joining=joining, decoding=decoding, slots=self._slots)
        allowed = [self._grammar_pool.submit(row.generation.allowed) for row in packed.rows]
        return forward.step(self._model, packed), packed.rows, allowed

    def _settle(self, logits: torch.Tensor, rows: Sequence[Row], allowed: Sequence[Future[Allowed]]) -> None:
        """Choosing tokens may want memory as well; then the rows of this step end, and the engine goes on."""
        try:
            self._choose(logits, rows, allowed)
        except Exception as raised:
            let_go(raised)
            error = out_of_memory() if is_out_of_memory(raised) else step_failed(raised)
            for row in rows:
                if row.slot >= 0:
                    self._fail(row, error)

    def _choose(self, logits: torch.Tensor, rows: Sequence[Row], allowed: Sequence[Future[Allowed]]) -> None:
        """Give each row its next token; those that are done leave with their answers."""
        broken = set(broken_rows(logits))
        good: list[tuple[int, Row, Allowed]] = []
        for number, (row, mask) in enumerate(zip(rows, allowed, strict=True)):
            error = mask.exception()
            if number in broken:
                self._fail(row, FatalWork("nan_logits", "the model's output was not a number"), spoiled=True)
            elif error is None:
                good.append((number, row, mask.result()))
            else:
                self._fail(row, error)
        if not good:
            return
        chosen = logits[[number for number, _, _ in good]] if len(good) < len(rows) else logits
        tokens = choose(chosen, [row.generation.turn(mask) for _, row, mask in good])
        for (number, row, _), token in zip(good, tokens, strict=True):
            self._accept(row, token, logits[number])

    def _accept(self, row: Row, token: int, logits: torch.Tensor) -> None:
        fresh = not row.generation.tokens
        row.own += 0 if fresh else 1
        if fresh:
            row.first = time.monotonic()
        try:
            done = row.generation.accept(token, logits)
            answer = row.generation.answer(cached_tokens=row.cached) if done else None
        except Exception as error:
            self._fail(row, error)
            return
        if answer is not None:
            self._running.keep_answer(row)
            self._running.leave(row)
            times = Times(row.prepared.arrived, time.monotonic(), row.first, row.joined)
            _succeed(row.prepared.future, replace(answer, times=times))

    def _fail(self, row: Row, error: BaseException, *, spoiled: bool = False) -> None:
        """End a row whose step went well for others; `spoiled` if its KV may hold what is no number."""
        if spoiled:
            self._running.leave_spoiled(row)
        else:
            self._running.leave(row)
        fail(row.prepared.future, error if isinstance(error, WorkError) else step_failed(error))

    def _no_memory(
        self, builds: Sequence[Build], joining: Sequence[Row], decoding: Sequence[Row]
    ) -> WorkError:
        rows = len(joining) + len(decoding)
        self._tools.observer.out_of_memory(rows=rows)
        if rows > 1 and not self._lowered:  # the halves of this step say nothing new of how much fits
            self._budget.lower(rows=rows, tokens=_new_tokens(builds, joining))
            self._lowered = True
        return out_of_memory()

    def _stepped(
        self, joining: Sequence[Row], decoding: Sequence[Row], new_tokens: int, seconds: float
    ) -> None:
        self._tools.observer.stepped(
            rows=len(joining) + len(decoding),
            row_limit=self._budget.most_rows,
            joined=len(joining),
            prompt_tokens=new_tokens,
            cached_tokens=sum(row.cached for row in joining),
            seconds=seconds,
        )


def _new_tokens(builds: Sequence[Build], joining: Sequence[Row]) -> int:
    pieces = sum(build.node.end - build.node.start for build in builds)
    return pieces + sum(len(row.tail) for row in joining)


def _parts(rows: Sequence[Row], most: int) -> list[Sequence[Row]]:
    """At least one."""
    return [rows[start : start + most] for start in range(0, len(rows), most)] or [()]


def _halves(rows: Sequence[Row]) -> list[Sequence[Row]]:
    middle = (len(rows) + 1) // 2
    return [half for half in (rows[:middle], rows[middle:]) if half]


def _succeed(future: Future[Answer], answer: Answer) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(answer)
