"""The fallback engine: one request at a time through the library's own forward pass, nothing kept or shared.

Where an answer of the batching engine is in doubt, or a new model or device makes it fail, this one takes
its place: the same prompts and the same choice of tokens, without packed steps, prefixes and caches.
"""

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from app.errors import FatalWork, WorkError
from workers.engine import forward
from workers.engine.base import Answer, Image, Observer, Request
from workers.engine.checks import check_length, image_grid, placed_images
from workers.engine.failures import (
    engine_closed,
    fail,
    is_out_of_memory,
    job_timeout,
    let_go,
    out_of_memory,
    step_failed,
)
from workers.engine.features import Features
from workers.engine.generation import Generation
from workers.engine.grammar import Grammars
from workers.engine.load import LIBRARY_ATTENTION, Checkpoint, Dtype, load_checkpoint
from workers.engine.preprocess import Grid
from workers.engine.prompt import Prompt, PromptBuilder
from workers.engine.sampling import broken_rows, choose
from workers.engine.watchdog import Watchdog, end_process


def open_engine(
    *,
    model: str,
    observer: Observer,
    name: str | None = None,
    device: str = "auto",
    dtype: Dtype = "auto",
    torch_threads: int = 0,
    max_pixels: int | None = None,
    stall_s: float = 300.0,
) -> "SingleEngine":
    """Load a checkpoint and start the engine on it; raises FatalWork where it is not one that we run."""
    if torch_threads:
        torch.set_num_threads(torch_threads)
    checkpoint = load_checkpoint(
        model, device=device, dtype=dtype, max_pixels=max_pixels, attention=LIBRARY_ATTENTION
    )
    return SingleEngine(
        name=name or model.rstrip("/").rsplit("/", 1)[-1],
        checkpoint=checkpoint,
        observer=observer,
        stall_s=stall_s,
    )


@dataclass(frozen=True)
class Ticket:
    """A request that waits for its turn or has it."""

    request: Request
    future: Future[Answer]
    arrived: float  # time.monotonic() at submit

    @property
    def ended(self) -> bool:
        return self.future.cancelled() or self.request.is_late(time.monotonic())


class SingleEngine:
    """Answers in the order of arrival, urgent requests first."""

    def __init__(
        self,
        *,
        name: str,
        checkpoint: Checkpoint,
        observer: Observer,
        stall_s: float = 300.0,
        on_dead: Callable[[], None] = end_process,
    ) -> None:
        self.model = name
        self.revision = checkpoint.revision
        # Answers that the batching engine gave are in doubt where this one is used: no cache gives them back.
        self.number_format = f"{checkpoint.number_format} single"
        self._observer = observer
        self._on_dead = on_dead
        self._watchdog = Watchdog(limit_s=stall_s, on_stall=on_dead)
        self._answering = _Answering(checkpoint, observer=observer, watchdog=self._watchdog)
        self._waiting: list[tuple[bool, int, Ticket]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Answer]:
        ticket = Ticket(request, Future(), time.monotonic())
        with self._changed:
            closed = self._closed
            if not closed:
                heapq.heappush(self._waiting, (not request.urgent, next(self._numbers), ticket))
                self._changed.notify()
        if closed:
            fail(ticket.future, engine_closed())
        return ticket.future

    def close(self) -> None:
        """Let the request that runs end, fail the rest; may be called again."""
        self._end_waiting()
        self._thread.join()
        self._watchdog.close()

    def _end_waiting(self) -> None:
        with self._changed:
            self._closed = True
            left, self._waiting = self._waiting, []
            self._changed.notify()
        for _, _, ticket in left:
            fail(ticket.future, engine_closed())

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while (ticket := self._next()) is not None:
                    self._settle(ticket)
        except BaseException:  # a fault of ours: without its thread the process would hand back every job
            traceback.print_exc()
            self._on_dead()
        finally:  # however the thread ends, nobody waits for it in vain
            self._end_waiting()

    def _next(self) -> Ticket | None:
        """Waits for one; None once the engine is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            return heapq.heappop(self._waiting)[2] if self._waiting else None

    def _settle(self, ticket: Ticket) -> None:
        """Whatever goes wrong is in the request's future, except the loss of the device."""
        try:
            answer = self._answering.answer(ticket)
        except torch.AcceleratorError as raised:
            self._on_dead()  # after such an error every later step would fail, too
            fail(ticket.future, step_failed(raised))
        except Exception as raised:
            let_go(raised)
            fail(ticket.future, self._error(raised))
        else:
            if ticket.future.set_running_or_notify_cancel():
                ticket.future.set_result(answer)

    def _error(self, raised: Exception) -> WorkError:
        if is_out_of_memory(raised):
            self._observer.out_of_memory(rows=1)
            return out_of_memory()
        return raised if isinstance(raised, WorkError) else step_failed(raised)


class _Answering:
    """From a request to its answer, token after token; for the engine's thread only."""

    def __init__(self, checkpoint: Checkpoint, *, observer: Observer, watchdog: Watchdog) -> None:
        self._checkpoint = checkpoint
        self._observer = observer
        self._watchdog = watchdog
        self._prompts = PromptBuilder(checkpoint.tokenizer, context=checkpoint.context)
        self._grammars = Grammars(
            self._prompts.tokenizer, vocabulary=checkpoint.vocabulary, end_ids=checkpoint.end_ids
        )

    def answer(self, ticket: Ticket) -> Answer:
        """Raises WorkError, and what the model or `Image.load` raises."""
        _check(ticket)
        request = ticket.request
        places = placed_images(request)
        grids = {index: image_grid(self._checkpoint.preprocessor, request, index) for index in places}
        prompt = self._prompts.build(request.turns, [grids[index] for index in places])
        check_length(len(prompt), request.sampling.max_tokens, limit=self._checkpoint.context)
        generation = Generation.of(
            request,
            prompt,
            tokenizer=self._prompts.tokenizer,
            end_ids=self._checkpoint.end_ids,
            grammars=self._grammars,
        )
        encoded = {index: self._encode(request.images[index], grid) for index, grid in grids.items()}
        self._observer.waited(seconds=time.monotonic() - ticket.arrived)
        return self._decode(ticket, prompt, generation, [encoded[index] for index in places])

    def _encode(self, image: Image, grid: Grid) -> Features:
        patches = self._checkpoint.preprocessor.patches(image.load(), grid)
        started = time.perf_counter()
        with self._watchdog.watching():
            (features,) = forward.encode(self._checkpoint.model, [(patches, grid)])
        self._observer.encoded(images=1, visual_tokens=grid.tokens, seconds=time.perf_counter() - started)
        return features

    def _decode(
        self, ticket: Ticket, prompt: Prompt, generation: Generation, features: list[Features]
    ) -> Answer:
        config: Any = self._checkpoint.model.config.text_config  # annotated as what it was before it was read
        cache = DynamicCache(config=config)
        fed = forward.Plain.of_prompt(prompt, features)
        while True:
            _check(ticket)
            started = time.perf_counter()
            with self._watchdog.watching():
                logits = forward.plain_step(self._checkpoint.model, fed, cache)
            if broken_rows(logits):
                raise FatalWork("nan_logits", "the model's output was not a number")
            (token,) = choose(logits, [generation.turn(generation.allowed())])
            self._stepped(fed, time.perf_counter() - started)
            if generation.accept(token, logits[0]):
                return generation.answer()
            fed = forward.Plain.of_token(token, prompt, number=len(generation.tokens) - 1)

    def _stepped(self, fed: forward.Plain, seconds: float) -> None:
        first = fed.is_prompt
        self._observer.stepped(
            rows=1,
            row_limit=1,
            joined=int(first),
            prompt_tokens=len(fed.ids) if first else 0,
            cached_tokens=0,
            seconds=seconds,
        )


def _check(ticket: Ticket) -> None:
    """Ends a request that nobody wants any more."""
    if ticket.ended:
        raise job_timeout()
