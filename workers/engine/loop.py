"""Requests answered by coroutines: an event loop in a thread of its own, futures for everybody else."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from app.errors import WorkError
from workers.engine.base import Answer, Observer, Request, Times
from workers.engine.failures import engine_closed, fail, job_timeout, step_failed

T = TypeVar("T")


@dataclass(eq=False)
class Ticket:
    """A request on its way; `first` is when the first part of its answer came: then a close lets it end."""

    request: Request
    future: Future[Answer]
    arrived: float
    first: float | None = None
    stopped: WorkError | None = None
    task: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self.first is not None

    def stop(self, error: WorkError) -> None:
        """On the loop's thread: end the coroutine, which frees what it holds elsewhere."""
        self.stopped = error
        if self.task is not None:
            self.task.cancel()


Answering = Callable[[Request, Callable[[], None]], Coroutine[Any, Any, Answer]]


class RequestLoop:
    """Runs `answer(request, begun)` for every request; the coroutine calls `begun` at its first token."""

    def __init__(self, name: str, answer: Answering, *, observer: Observer) -> None:
        self._answer = answer
        self._observer = observer
        self._tickets: set[Ticket] = set()
        self._closed: WorkError | None = None
        self._empty = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this on the loop, and wait for it; not from the loop's own thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this beside the requests until `close`."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def submit(self, request: Request) -> Future[Answer]:
        ticket = Ticket(request, Future(), time.monotonic())
        if not self._soon(lambda: self._admit(ticket)):
            fail(ticket.future, engine_closed())
        return ticket.future

    def end_all(self, error: WorkError) -> None:
        """On the loop's thread: nothing runs any more, and nothing will."""
        self._closed = error
        for ticket in tuple(self._tickets):
            ticket.stop(error)

    def close(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let what has begun end, fail the rest, then `stop`; may be called again."""
        if self._loop.is_closed():
            return
        self.run(self._drain())
        self.run(stop())
        self.run(_cancel_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _drain(self) -> None:
        self._closed = self._closed or engine_closed()
        for ticket in tuple(self._tickets):
            if not ticket.begun:
                ticket.stop(self._closed)
        while self._tickets:
            self._empty.clear()
            await self._empty.wait()

    def _admit(self, ticket: Ticket) -> None:
        if self._closed is not None:
            fail(ticket.future, self._closed)
        elif ticket.request.is_late(time.monotonic()):
            fail(ticket.future, job_timeout())
        else:
            self._tickets.add(ticket)
            ticket.task = self._loop.create_task(self._run(ticket))
            ticket.future.add_done_callback(lambda future: future.cancelled() and self._drop(ticket))

    def _drop(self, ticket: Ticket) -> None:
        """The caller has cancelled its future, on whatever thread."""
        self._soon(lambda: ticket.stop(engine_closed()))

    async def _run(self, ticket: Ticket) -> None:
        timer = self._timer(ticket)
        try:
            answer = await self._answer(ticket.request, lambda: self._begin(ticket))
        except asyncio.CancelledError:
            fail(ticket.future, ticket.stopped or engine_closed())
        except WorkError as error:
            fail(ticket.future, ticket.stopped or error)
        except Exception as error:
            fail(ticket.future, ticket.stopped or step_failed(error))
        else:
            if ticket.future.set_running_or_notify_cancel():
                times = Times(ticket.arrived, time.monotonic(), ticket.first)
                ticket.future.set_result(replace(answer, times=times))
        finally:
            if timer is not None:
                timer.cancel()
            self._tickets.discard(ticket)
            self._empty.set()

    def _timer(self, ticket: Ticket) -> asyncio.TimerHandle | None:
        if ticket.request.deadline is None:
            return None
        left = ticket.request.deadline - time.monotonic()
        return self._loop.call_later(left, lambda: ticket.stop(job_timeout()))

    def _begin(self, ticket: Ticket) -> None:
        if not ticket.begun:
            ticket.first = time.monotonic()
            self._observer.waited(seconds=ticket.first - ticket.arrived)

    def _soon(self, act: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:  # the loop is closed
            return False
        return True


async def _cancel_rest() -> None:
    """What was started beside the requests ends before its loop goes, else it would warn."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
