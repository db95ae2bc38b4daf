"""The Transformers engine: one thread owns the model and runs group after group of requests."""

import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from app.errors import FatalWork, TransientWork, WorkError
from workers.engine.base import Answer, Observer, Request
from workers.engine.features import FeatureCache, MemoryTier
from workers.engine.group import Group, Tools
from workers.engine.load import Checkpoint, Dtype, load_checkpoint
from workers.engine.prepare import Prepared, Preparer
from workers.engine.redis_tier import RedisTier, connect
from workers.engine.waiting import WaitingRoom, engine_closed, fail, job_timeout

OUT_OF_MEMORY = "out_of_memory"


def open_engine(
    *,
    model: str,
    normaliser: str,
    observer: Observer,
    name: str | None = None,
    device: str = "auto",
    dtype: Dtype = "auto",
    torch_threads: int = 0,
    max_pixels: int | None = None,
    step_rows: int = 16,
    max_wait_s: float = 0.01,
    feature_cache_bytes: int = 0,
    feature_cache_ttl_s: int = 86_400,
    redis_url: str | None = None,
    prepare_threads: int = 2,
) -> "TransformersEngine":
    """Load a checkpoint and start the engine on it; raises FatalWork where it is not one that we run.

    `torch_threads` 0 leaves torch's own choice; without `redis_url` features are cached in memory only.
    """
    if torch_threads:
        torch.set_num_threads(torch_threads)
    checkpoint = load_checkpoint(model, device=device, dtype=dtype, max_pixels=max_pixels)
    store = None
    if redis_url is not None:
        store = RedisTier(client=connect(redis_url), ttl_s=feature_cache_ttl_s, observer=observer)
    return TransformersEngine(
        name=name or model.rstrip("/").rsplit("/", 1)[-1],
        checkpoint=checkpoint,
        cache=FeatureCache(memory=MemoryTier(budget=feature_cache_bytes), store=store, observer=observer),
        observer=observer,
        normaliser=normaliser,
        step_rows=step_rows,
        max_wait_s=max_wait_s,
        prepare_threads=prepare_threads,
    )


class TransformersEngine:
    """Groups requests of like length and decodes each group until its last row is done.

    Whoever submits waits for nothing: preparing happens on a small pool, the model on a thread of its own.
    """

    def __init__(
        self,
        *,
        name: str,
        checkpoint: Checkpoint,
        cache: FeatureCache,
        observer: Observer,
        normaliser: str,
        step_rows: int = 16,
        max_wait_s: float = 0.01,
        prepare_threads: int = 2,
    ) -> None:
        self.model = name
        self.revision = checkpoint.revision
        self._cache = cache
        self._observer = observer
        self._preparer = Preparer(checkpoint=checkpoint, cache=cache, normaliser=normaliser)
        self._tools = Tools(checkpoint, self._preparer.tokenizer, cache, observer, step_rows)
        self._room = WaitingRoom(row_limit=step_rows, max_wait_s=max_wait_s)
        self._pool = ThreadPoolExecutor(prepare_threads, thread_name_prefix="engine-prepare")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        try:
            self._pool.submit(self._prepare, request, future, time.monotonic())
        except RuntimeError:  # the pool is shut down
            fail(future, engine_closed())
        return future

    def close(self) -> None:
        """Let the rows that run end, fail the rest, stop the threads; may be called again."""
        self._closed.set()
        self._room.close()
        self._pool.shutdown()
        self._thread.join()
        self._cache.close()

    def _prepare(self, request: Request, future: Future[Answer], arrived: float) -> None:
        if self._closed.is_set():
            fail(future, engine_closed())
        elif future.cancelled():
            future.set_running_or_notify_cancel()
        elif request.deadline is not None and time.monotonic() >= request.deadline:
            fail(future, job_timeout())
        else:
            self._admit(request, future, arrived)

    def _admit(self, request: Request, future: Future[Answer], arrived: float) -> None:
        try:
            row = self._preparer.prepare(request, future, arrived)
        except WorkError as error:
            _let_go(error)
            fail(future, error)
        except Exception as error:
            _let_go(error)
            fail(future, _failure("prepare_failed", "the request could not be prepared", error))
        else:
            self._room.add(row)

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._run_group():
                    pass
        finally:  # however the thread ends, nobody waits for it in vain
            self._closed.set()
            self._room.close()

    def _run_group(self) -> bool:
        """Nothing of a group outlives this call, else an idle engine would hold its pictures."""
        group = self._room.take()
        if group is None:
            return False
        now = time.monotonic()
        for row in group:
            self._observer.waited(seconds=now - row.arrived)
        if group:
            self._answer(group)
        return True

    def _answer(self, group: Sequence[Prepared]) -> None:
        """Run a group; on failure run what is left of it in smaller ones, down to rows alone."""
        error = self._try(group)
        left = [row for row in group if not row.future.done()]
        if error is None or not left:
            return
        if len(left) == 1 and len(group) == 1:
            left[0].future.set_exception(error)
            return
        size = (len(left) + 1) // 2 if error.code == OUT_OF_MEMORY else 1
        for start in range(0, len(left), size):
            self._answer(left[start : start + size])

    def _try(self, group: Sequence[Prepared]) -> WorkError | None:
        """The error as a value: one that is still being handled would keep the step's tensors alive."""
        try:
            Group(group, tools=self._tools).run()
        except (torch.OutOfMemoryError, MemoryError):
            self._observer.out_of_memory(rows=len(group))
            error = TransientWork(OUT_OF_MEMORY, "the model ran out of memory")
        except Exception as raised:
            _let_go(raised)
            error = _failure("step_failed", "the model failed on this request", raised)
        else:
            return None
        torch.cuda.empty_cache()
        return error


def _let_go(error: BaseException) -> None:
    """Drop what the frames of a failure hold, such as a half-read picture: a future may keep it for long."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def _failure(code: str, message: str, cause: Exception) -> WorkError:
    """What a client may read, with the cause for the logs."""
    error = FatalWork(code, f"{message} ({type(cause).__name__})")
    error.__cause__ = cause
    return error
