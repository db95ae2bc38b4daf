"""The Transformers engine: one thread owns the model and runs step after step; others prepare requests."""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from app.errors import WorkError
from workers.engine.base import Answer, Observer, Request
from workers.engine.encoder import Encoder
from workers.engine.encodings import Busy, Encodings, Placed
from workers.engine.failures import engine_closed, fail, job_timeout, let_go, prepare_failed
from workers.engine.feature_codec import Format
from workers.engine.feature_setup import FeatureSettings, open_features
from workers.engine.features import FeatureCache
from workers.engine.load import Checkpoint, Dtype, load_checkpoint
from workers.engine.prefixes import PrefixCache
from workers.engine.prepare import Preparer
from workers.engine.scheduler import Budget
from workers.engine.slots import Slots
from workers.engine.steps import Steps, Tools
from workers.engine.waiting import STEPS_AHEAD, WaitingRoom
from workers.engine.watchdog import Watchdog, end_process

CPU_KV_BYTES = 2 * 2**30
# Of a GPU's memory that is free once the weights are there; the rest is for a step's activations.
GPU_KV_SHARE = 0.6


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
    step_rows: int = 128,
    step_tokens: int = 2048,
    max_wait_s: float = 0.01,
    kv_bytes: int | None = None,
    prefix_cache_bytes: int | None = None,
    stall_s: float = 300.0,
    feature_cache_bytes: int = 0,
    feature_cache_ttl_s: int = 86_400,
    feature_cache_redis_bytes: int = 2**29,
    feature_cache_format: Format = Format.NATIVE,
    feature_check_share: float = 0.0,
    redis_url: str | None = None,
    prepare_threads: int = 2,
) -> "TransformersEngine":
    """Load a checkpoint and start the engine on it; raises FatalWork where it is not one that we run.

    `torch_threads` 0 leaves torch's own choice; without `redis_url` features are cached in memory only.
    `kv_bytes` bounds the KV of all prefixes, by default 2 GiB or 60 % of a GPU's free memory;
    `prefix_cache_bytes` of it, by default half, may be kept while nobody uses them. A step computes at most
    `step_tokens` for rows that join, but always for one.
    """
    if torch_threads:
        torch.set_num_threads(torch_threads)
    checkpoint = load_checkpoint(model, device=device, dtype=dtype, max_pixels=max_pixels)
    kv_bytes = _default_kv_bytes(checkpoint.kv_shape.device) if kv_bytes is None else kv_bytes
    features = FeatureSettings(
        memory_bytes=feature_cache_bytes,
        redis_url=redis_url,
        redis_bytes=feature_cache_redis_bytes,
        ttl_s=feature_cache_ttl_s,
        form=feature_cache_format,
        check_share=feature_check_share,
    )
    return TransformersEngine(
        name=name or model.rstrip("/").rsplit("/", 1)[-1],
        checkpoint=checkpoint,
        cache=open_features(features, observer=observer, prepare_threads=prepare_threads),
        observer=observer,
        normaliser=normaliser,
        step_rows=step_rows,
        step_tokens=step_tokens,
        max_wait_s=max_wait_s,
        kv_bytes=kv_bytes,
        prefix_cache_bytes=kv_bytes // 2 if prefix_cache_bytes is None else prefix_cache_bytes,
        stall_s=stall_s,
        prepare_threads=prepare_threads,
    )


def _default_kv_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return CPU_KV_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(GPU_KV_SHARE * free)


class TransformersEngine:
    """Continuous batching with shared prefixes: a request joins the next step and leaves when it is done.

    Whoever submits waits for nothing: preparing happens on a small pool, the model on a thread of its own.
    A step that does not end within `stall_s` or loses its device, and a thread that ends unasked, call
    `on_dead`, which ends the process.
    """

    def __init__(
        self,
        *,
        name: str,
        checkpoint: Checkpoint,
        cache: FeatureCache,
        observer: Observer,
        normaliser: str,
        step_rows: int = 128,
        step_tokens: int = 2048,
        max_wait_s: float = 0.01,
        kv_bytes: int = CPU_KV_BYTES,
        prefix_cache_bytes: int = CPU_KV_BYTES // 2,
        stall_s: float = 300.0,
        on_dead: Callable[[], None] = end_process,
        prepare_threads: int = 2,
    ) -> None:
        self.model = name
        self.revision = checkpoint.revision
        self.number_format = checkpoint.number_format
        self._cache = cache
        self._observer = observer
        prefixes = PrefixCache(budget=prefix_cache_bytes, limit=kv_bytes)
        encodings = Encodings(checkpoint=checkpoint, cache=cache, normaliser=normaliser, idle=self._is_idle)
        self._preparer = Preparer(checkpoint=checkpoint, encodings=encodings, prefixes=prefixes)
        tools = Tools(
            checkpoint=checkpoint,
            tokenizer=self._preparer.tokenizer,
            grammars=self._preparer.grammars,
            encoder=Encoder(model=checkpoint.model, cache=cache, observer=observer),
            prefixes=prefixes,
            slots=Slots(checkpoint.kv_shape),
            observer=observer,
            kv_bytes=kv_bytes,
            on_device_lost=on_dead,
        )
        self._steps = Steps(tools, Budget(step_rows, step_tokens))
        self._room = WaitingRoom(places=STEPS_AHEAD * step_rows, max_wait_s=max_wait_s, prefixes=prefixes)
        self._on_dead = on_dead
        self._watchdog = Watchdog(limit_s=stall_s, on_stall=on_dead)
        self._pool = ThreadPoolExecutor(prepare_threads, thread_name_prefix="engine-prepare")
        # Threads of their own: those of the others may all wait for a place in a full room.
        self._urgent_pool = ThreadPoolExecutor(prepare_threads, thread_name_prefix="engine-prepare-urgent")
        self._closed = threading.Event()
        self._stepping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._soon(request, future, time.monotonic())
        return future

    def _soon(
        self, request: Request, future: Future[Answer], arrived: float, held: Sequence[Placed] = ()
    ) -> None:
        """Prepare it after those that are to be prepared already; what is `held` stays until then."""
        self._room.expect()
        try:
            pool = self._urgent_pool if request.urgent else self._pool
            pool.submit(self._prepare, request, future, arrived, held)
        except RuntimeError:  # the pool is shut down
            self._room.expect_no_more()
            fail(future, engine_closed())

    def close(self) -> None:
        """Let the rows that run end, fail the rest, stop the threads; may be called again."""
        self._closed.set()
        self._room.close()
        self._pool.shutdown()
        self._urgent_pool.shutdown()
        self._thread.join()
        self._watchdog.close()
        self._steps.close()
        self._cache.close()

    def _prepare(
        self, request: Request, future: Future[Answer], arrived: float, _held: Sequence[Placed] = ()
    ) -> None:
        try:
            self._prepare_or_fail(request, future, arrived)
        except Busy as busy:  # the thread is free for others until the image is there
            ready = busy.ready
            busy.encoding.when_free(lambda: self._soon(request, future, arrived, ready))
        except BaseException as error:  # nothing may leave a future undone
            let_go(error)
            fail(future, error if isinstance(error, WorkError) else prepare_failed(error))
        finally:
            self._room.expect_no_more()

    def _prepare_or_fail(self, request: Request, future: Future[Answer], arrived: float) -> None:
        if self._closed.is_set():
            fail(future, engine_closed())
        elif future.cancelled():
            future.set_running_or_notify_cancel()
        elif request.is_late(time.monotonic()):
            fail(future, job_timeout())
        else:
            self._room.add(self._preparer.prepare(request, future, arrived))

    def _is_idle(self) -> bool:
        """Whether the model would have nothing to do while a request waits to be prepared."""
        return not (self._stepping or len(self._steps) or len(self._room))

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._run_step():
                    pass
        except BaseException:  # a fault of ours: without its thread the process would hand back every job
            traceback.print_exc()
            self._on_dead()
        finally:  # however the thread ends, nobody waits for it in vain
            self._closed.set()
            self._room.close()
            self._steps.abandon(engine_closed())

    def _run_step(self) -> bool:
        """Nothing of a step outlives this call, else an idle engine would hold its pictures."""
        joining = self._room.take(self._steps.room())
        if joining is None and not len(self._steps):
            return False
        now = time.monotonic()
        for row in joining or ():
            self._observer.waited(seconds=now - row.arrived)
        self._stepping = True
        with self._watchdog.watching():
            self._steps.run(joining or ())
        self._stepping = False
        return True
