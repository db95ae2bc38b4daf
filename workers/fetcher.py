"""The fetcher process: downloads the images that jobs refer to, checks them, stores them once."""

import random
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Condition, Event

import structlog

from app import telemetry, tracing
from app.config import Settings, read_settings
from app.db import Sessions, make_engine, make_sessions, transaction
from app.download import make_downloader
from app.errors import FatalWork, TransientWork, WorkError
from app.images import image_limits
from app.loops import Loop
from app.objects import make_objects
from app.states import GiveUp, RetryPolicy, TryAgain, after_error
from app.store import images, pauses, quotas
from app.store.images import FetchTask, StoredImage
from app.store.notices import IMAGES, Listener
from app.store.traces import read_waiting
from app.waking import waking_loop
from workers.hashing import THREADS, Hasher
from workers.sources import SourceReader

log = structlog.get_logger()

Outcome = StoredImage | TryAgain | GiveUp

# Delays between tries of one image: from a second up to a minute, or what the host asked for.
LONGEST_DELAY_S = 60.0
# What a host may ask for with Retry-After, for all of its images: a wrong clock must not end it for days.
LONGEST_PAUSE_S = 600.0
QUIET_S = 5.0  # how long `settle` and a stop wait for downloads by default


class Fetcher:
    """Claims due images and downloads them on its threads, a few at a time from each host."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        read: Callable[[FetchTask], bytes],
        keep: Callable[[FetchTask, bytes], StoredImage],
        settings: Settings,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._sessions = sessions
        self._read = read
        self._keep = keep
        self._settings = settings
        self._policy = RetryPolicy(attempts=settings.fetch_attempts, longest_s=LONGEST_DELAY_S)
        self._spread = spread
        self._pool = ThreadPoolExecutor(settings.fetch_threads, thread_name_prefix="fetch")
        self._changed = Condition()
        self._active: Counter[str] = Counter()
        for outcome in ("stored", "retried"):
            telemetry.FETCHES.labels(outcome)  # before the first: Prometheus sees increases only

    def step(self) -> bool:
        """Claim and start what threads and hosts have room for; whether any was new."""
        with self._changed:
            active = dict(self._active)
        room = self._settings.fetch_threads - sum(active.values())
        if room <= 0:
            return False
        with transaction(self._sessions) as session:
            claimed = images.claim_fetches(
                session,
                limit=room,
                lease_s=self._settings.fetch_total_s,
                per_host=self._settings.fetch_per_host,
                active=active,
                images_day=self._settings.quota_images_day,
            )
            if claimed and tracing.is_on():
                waiting = read_waiting(session, [task.id for task in claimed])
                claimed = [replace(task, traces=waiting.get(task.id, {})) for task in claimed]
        for task in claimed:
            with self._changed:
                self._active[task.host] += 1
            self._pool.submit(self._run, task)
        return bool(claimed)

    def settle(self, timeout_s: float = QUIET_S) -> bool:
        """Wait until nothing is being downloaded; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._active, timeout_s)

    def close(self) -> None:
        """Let running downloads end; what had not begun is due again when its lease runs out."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, task: FetchTask) -> None:
        try:
            self.fetch(task)
        except Exception:  # the top of a thread's work: the lease brings the image back
            log.exception("fetch_unrecorded", image=task.id, attempt=task.attempt)
        finally:
            with self._changed:
                self._active[task.host] -= 1
                if not self._active[task.host]:
                    del self._active[task.host]
                self._changed.notify_all()

    def fetch(self, task: FetchTask) -> None:
        """Download one image and record what came of it."""
        with (
            telemetry.stage("fetch"),
            tracing.follow(
                "fetch", task.traces, image=task.id, kind_of_source=task.kind, attempt=task.attempt
            ) as step,
        ):
            outcome = self._outcome(task)
            _say(step, outcome)
        with transaction(self._sessions) as session:
            match outcome:
                case StoredImage():
                    ended = images.record_stored(session, task, outcome)
                case GiveUp(code, message):
                    ended = images.record_failed(session, task, code, message)
                    telemetry.JOBS_ENDED.labels("failed", code).inc(ended or 0)
                case again:
                    ended = None
                    images.record_later(session, task, again.after_s, counts=again.counts)
            if task.is_counted and ended is not None:
                quotas.count_fetch(session, task.tenant_id, default=self._settings.quota_images_day)

    def _outcome(self, task: FetchTask) -> Outcome:
        try:
            stored = self._keep(task, self._read(task))
        except WorkError as error:
            return self._after(task, error)
        except Exception as error:  # a bug of ours must not stop the other images
            log.exception("fetch_faulted", image=task.id, attempt=task.attempt)
            return self._after(task, FatalWork("internal_error", f"Unexpected {type(error).__name__}."))
        telemetry.FETCHES.labels("stored").inc()
        log.info("image_stored", image=task.id, kind=task.kind, bytes=stored.bytes, attempt=task.attempt)
        return stored

    def _after(self, task: FetchTask, error: WorkError) -> TryAgain | GiveUp:
        if isinstance(error, TransientWork) and error.retry_after_s and task.host:
            self._pause(task.host, min(error.retry_after_s, LONGEST_PAUSE_S))
        decided = after_error(error, attempt=task.tries, policy=self._policy, spread=self._spread())
        telemetry.FETCHES.labels(error.code if isinstance(decided, GiveUp) else "retried").inc()
        log.info(
            "image_failed" if isinstance(decided, GiveUp) else "image_retried",
            image=task.id,
            kind=task.kind,
            code=error.code,
            attempt=task.attempt,
        )
        return decided

    def _pause(self, host: str, seconds: float) -> None:
        """The host asked for it: its other images would only be refused, too, and lose a try each."""
        with transaction(self._sessions) as session:
            pauses.pause_host(session, host, seconds)
        log.info("host_paused", host=host, seconds=round(seconds))


def _say(step: tracing.Step, outcome: Outcome) -> None:
    """What came of it, in the traces."""
    match outcome:
        case StoredImage():
            step.note(bytes=outcome.bytes)
        case GiveUp(code, _):
            step.fail(code)
        case again:
            step.note(again_s=again.after_s)


def serve(settings: Settings) -> None:
    """Fetch until SIGTERM or SIGINT, then let running downloads end."""
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    database = make_engine(
        settings.database_url.get_secret_value(),
        pool_size=settings.database_pool_size,
        application="fetcher",
    )
    sessions = make_sessions(database)
    objects = make_objects(settings, connections=settings.fetch_threads + THREADS)
    hasher = Hasher(sessions=sessions, objects=objects, settings=settings)
    sources = SourceReader(
        sessions=sessions,
        objects=objects,
        download=make_downloader(settings).fetch,
        limits=image_limits(settings),
        buckets=settings.s3_source_buckets,
    )
    fetcher = Fetcher(sessions=sessions, read=sources.read, keep=sources.keep, settings=settings)
    wanted = Event()
    listening = waking_loop(Listener(database, IMAGES), wanted)
    loop = Loop("fetch", fetcher.step, idle_s=settings.dispatch_poll_s, wake=wanted)
    looking = Loop("look", hasher.step, idle_s=settings.dispatch_poll_s)
    listening.start()
    loop.start()
    looking.start()
    telemetry.serve_metrics(settings.metrics_port, role="fetcher")
    log.info("fetcher_ready")
    stopping.wait()
    listening.stop()
    loop.stop()
    looking.stop()
    loop.join(settings.drain_s)
    looking.join(settings.drain_s)
    fetcher.close()
    log.info("fetcher_stopped")


def main() -> None:
    settings = read_settings()
    telemetry.configure_logs(log_format=settings.log_format, level=settings.log_level, role="fetcher")
    tracing.set_up(settings, role="fetcher")
    serve(settings)


if __name__ == "__main__":
    main()
