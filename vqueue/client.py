"""The two clients, for ordinary and for async code: the same calls, sent and awaited each in its own way."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from vqueue import answer_calls, calls, cluster_calls, sweep_calls
from vqueue.calls import Call
from vqueue.errors import BatchFailed
from vqueue.trials import FIRST_PAUSE_S, Trial, part_of
from vqueue.types import Batch, Result

CONNECT_S = 5.0
POLL_S = 2.0

P = ParamSpec("P")
T = TypeVar("T")


class Method(Generic[P, T]):
    """A call as a method: of `Client` it gives the answer, of `AsyncClient` something to await."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: None, owner: object) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: object) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: object) -> Any:
        if client is None:
            return self
        return lambda *args, **options: client.send(self._call(*args, **options))


class Calls:
    """What both clients can do. `url` ends in /v1, and the key says for which tenant.

    Without them, VQUEUE_URL and VQUEUE_API_KEY are asked. A call without an answer, or answered with what may
    pass (408, 429, 5xx), is sent again up to `retries` times, as late as Retry-After asks; whatever creates
    something carries an Idempotency-Key, so that it is created once.
    """

    models = Method(calls.models)
    key = Method(calls.key)
    upload = Method(calls.upload)
    create_batch = Method(calls.create_batch)
    batch = Method(calls.batch)
    batches = Method(calls.batches)
    cancel = Method(calls.cancel)
    delete_batch = Method(calls.delete_batch)
    retry = Method(calls.retry)
    errors = Method(calls.errors)
    results_page = Method(calls.results_page)
    export = Method(calls.export)
    download = Method(calls.download)
    create_job = Method(calls.create_job)
    job = Method(calls.job)
    delete_job = Method(calls.delete_job)
    kept_answers = Method(calls.kept_answers)
    forget_answers = Method(calls.forget_answers)
    answers = Method(answer_calls.answers)
    count_answers = Method(answer_calls.count_answers)
    review = Method(answer_calls.review)
    delete_review = Method(answer_calls.delete_review)
    corrections = Method(answer_calls.corrections)
    agreement = Method(answer_calls.agreement)
    create_sweep = Method(sweep_calls.create_sweep)
    sweep = Method(sweep_calls.sweep)
    sweeps = Method(sweep_calls.sweeps)
    update_sweep = Method(sweep_calls.update_sweep)
    delete_sweep = Method(sweep_calls.delete_sweep)
    pause_sweep = Method(sweep_calls.pause_sweep)
    resume_sweep = Method(sweep_calls.resume_sweep)
    run_sweep = Method(sweep_calls.run_sweep)
    backfill_sweep = Method(sweep_calls.backfill_sweep)
    sweep_runs = Method(sweep_calls.sweep_runs)
    sweep_run = Method(sweep_calls.sweep_run)
    sweep_diff = Method(sweep_calls.sweep_diff)
    image_clusters = Method(cluster_calls.image_clusters)
    look_at_images = Method(cluster_calls.look_at_images)
    near_images = Method(cluster_calls.near_images)

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        retries: int = 3,
        timeout_s: float = 60.0,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self.url = (url or os.environ["VQUEUE_URL"]).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"the API's URL looks like http://127.0.0.1:8000/v1, not {self.url!r}")
        self._retries = retries
        self._first_pause_s = first_pause_s
        headers = {"Authorization": f"Bearer {key or os.environ['VQUEUE_API_KEY']}"}
        self._open(headers, httpx.Timeout(timeout_s, connect=CONNECT_S))

    def _open(self, headers: dict[str, str], timeout: httpx.Timeout) -> None:
        raise NotImplementedError

    def _trial(self, call: Call[Any]) -> Trial:
        return Trial(call, self.url, self._retries, self._first_pause_s)


class Client(Calls):
    """For ordinary code; threads may share it. Close it, or use it in a `with`."""

    def _open(self, headers: dict[str, str], timeout: httpx.Timeout) -> None:
        self._http = httpx.Client(headers=headers, timeout=timeout, follow_redirects=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        trial = self._trial(call)
        while True:
            try:
                answer = self._try(trial)
            except httpx.RequestError as error:
                pause = trial.broke(error)
            else:
                pause = trial.refused(answer)
                if pause is None:
                    return trial.read(answer)
            time.sleep(pause)

    def results(
        self, batch_id: str, *, after: int = 0, status: str | None = None, follow: bool = False
    ) -> Iterator[Result]:
        """The results so far, in the order in which they ended; following, until the batch's last one.

        `BatchFailed` where there are none and never will be, since the batch's file did not pass.
        """
        while True:
            page = self.results_page(batch_id, after=after, status=status)
            yield from page.data
            after = page.last_seq
            if not page.has_more:
                if page.ended and not after:
                    _passed(self.batch(batch_id))
                if page.ended or not follow:
                    return
                time.sleep(POLL_S)

    def _try(self, trial: Trial) -> httpx.Response:
        with _opened(trial.call) as file:
            answer = self._http.send(trial.request(self._http, file), stream=True)
        try:
            with _receiver(trial.call, answer) as write:
                if write is None:
                    answer.read()
                else:
                    for block in answer.iter_bytes():
                        write(block)
        finally:
            answer.close()
        return answer


class AsyncClient(Calls):
    """For async code. Close it, or use it in an `async with`."""

    def _open(self, headers: dict[str, str], timeout: httpx.Timeout) -> None:
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout, follow_redirects=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        trial = self._trial(call)
        while True:
            try:
                answer = await self._try(trial)
            except httpx.RequestError as error:
                pause = trial.broke(error)
            else:
                pause = trial.refused(answer)
                if pause is None:
                    return trial.read(answer)
            await asyncio.sleep(pause)

    async def results(
        self, batch_id: str, *, after: int = 0, status: str | None = None, follow: bool = False
    ) -> AsyncIterator[Result]:
        """The results so far, in the order in which they ended; following, until the batch's last one.

        `BatchFailed` where there are none and never will be, since the batch's file did not pass.
        """
        while True:
            page = await self.results_page(batch_id, after=after, status=status)
            for result in page.data:
                yield result
            after = page.last_seq
            if not page.has_more:
                if page.ended and not after:
                    _passed(await self.batch(batch_id))
                if page.ended or not follow:
                    return
                await asyncio.sleep(POLL_S)

    async def _try(self, trial: Trial) -> httpx.Response:
        with _opened(trial.call) as file:
            answer = await self._http.send(trial.request(self._http, file), stream=True)
        try:
            with _receiver(trial.call, answer) as write:
                if write is None:
                    await answer.aread()
                else:
                    async for block in answer.aiter_bytes():
                        write(block)
        finally:
            await answer.aclose()
        return answer


def _passed(batch: Batch) -> None:
    if batch.unread:
        raise BatchFailed(batch.id, batch.reasons)


@contextmanager
def _opened(call: Call[Any]) -> Iterator[BinaryIO | bytes | None]:
    """What a call uploads, from its beginning."""
    source = call.upload.source if call.upload else None
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
    else:
        yield source


@contextmanager
def _receiver(call: Call[Any], answer: httpx.Response) -> Iterator[Callable[[bytes], object] | None]:
    """Where the blocks of an answer go that is to be saved; the file gets its name once it is whole."""
    if call.save_to is None or answer.status_code >= 400:
        yield None
        return
    part = part_of(call.save_to)
    try:
        with part.open("wb") as file:
            yield file.write
        part.replace(call.save_to)
    finally:
        part.unlink(missing_ok=True)
