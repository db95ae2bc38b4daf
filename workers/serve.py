"""A worker around any engines: takes chunks from the broker, drains on SIGTERM."""

import os
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import Any

import structlog
from celery import Celery, signals

from app import heap, telemetry, tracing
from app.config import Settings
from app.db import Sessions, make_engine, make_sessions, transaction
from app.images import image_limits
from app.loops import Loop
from app.objects import make_objects
from app.planner import Lane
from app.queue import make_celery, queue_name
from app.states import Priority
from app.store import answer_cache, workers
from workers.gpu import watch_gpus
from workers.hangups import LOOK_S, HangUps
from workers.leases import Leases
from workers.pictures import PictureReader
from workers.pool import EnginePool
from workers.queues import consume_apart
from workers.recording import engine_fingerprint
from workers.runner import Runner
from workers.tasks import register
from workers.telling import Teller, connect

log = structlog.get_logger()

MOST_NODE_NAME = 100  # characters of models' names in Celery's name of us, which names queues of up to 255


def worker_name() -> str:
    """This process among all workers: in leases, logs and Flower."""
    return f"{socket.gethostname()}-{os.getpid()}"


def serve(settings: Settings, pool: EnginePool) -> int:
    """Serve until SIGTERM; the exit code. The same for every engine: tests hand in fake ones."""
    worker = worker_name()
    tracing.set_up(settings, role="worker")
    threads = settings.worker_threads * len(pool.residents)
    database = make_engine(
        settings.database_url.get_secret_value(),
        # Chunks that run, as many that wait for their turn, the heartbeat, and one to spare; interactive jobs
        # are in between, as each needs Postgres for milliseconds.
        pool_size=2 * threads + 2,
        application="worker",
    )
    sessions = make_sessions(database)
    objects = make_objects(settings)
    leases = Leases(sessions=sessions, worker=worker, settings=settings)
    heartbeat = Loop("heartbeat", leases.step, idle_s=settings.heartbeat_s)
    teller = Teller(connect(settings.redis_url.get_secret_value()))
    hang_ups = HangUps(sessions)
    looking = Loop("hang-ups", hang_ups.step, idle_s=LOOK_S)
    with (
        ThreadPoolExecutor(2 * threads, thread_name_prefix="read") as readers,
        ThreadPoolExecutor(2 * threads, thread_name_prefix="read-urgent") as urgent_readers,
    ):
        runner = Runner(
            sessions=sessions,
            pool=pool,
            leases=leases,
            read_image=PictureReader(objects=objects, limits=image_limits(settings)),
            readers=readers,
            urgent_readers=urgent_readers,
            settings=settings,
            worker=worker,
            teller=teller,
            hang_ups=hang_ups,
        )
        _announce(sessions, worker, pool)
        heartbeat.start()
        looking.start()
        telemetry.serve_metrics(settings.metrics_port, role="worker")
        celery = make_celery(settings)
        lanes = {
            queue_name(model, priority): Lane(model, priority)
            for model in pool.residents
            for priority in Priority
        }
        register(celery, runner, lanes)
        heap.settle()
        try:
            return _consume(
                celery, runner, settings, pool, worker=worker, prefetch=_prefetch(settings, lanes)
            )
        finally:
            pool.close()
            teller.close()
            looking.stop()
            heartbeat.stop()
            looking.join(settings.heartbeat_s)
            heartbeat.join(settings.heartbeat_s)
            _leave(sessions, worker)


def _prefetch(settings: Settings, lanes: Mapping[str, Lane]) -> dict[str, int]:
    """How many chunks of each queue are in hand at once: an interactive one has one job, a row of a step."""
    return {
        queue: settings.for_model(lane.model).rows_at_once
        if lane.priority is Priority.INTERACTIVE
        else settings.worker_threads
        for queue, lane in lanes.items()
    }


def _consume(
    celery: Celery,
    runner: Runner,
    settings: Settings,
    pool: EnginePool,
    *,
    worker: str,
    prefetch: Mapping[str, int],
) -> int:
    """Take chunks until told to stop; begin none then, and hand back what still runs after `drain_s`."""

    def close() -> None:
        log.warning("worker_gives_up")
        runner.give_up()
        pool.close()

    def drain(**_: object) -> None:
        log.info("worker_drains", within_s=settings.drain_s)
        runner.drain()
        last_call = Timer(settings.drain_s, close)
        last_call.daemon = True
        last_call.start()

    signals.worker_shutting_down.connect(drain, weak=False)
    consume_apart(celery, prefetch)
    first = celery.conf.task_queues[0].name
    # Celery's own worker class takes its options by keyword only, untyped.
    consumer: Any = celery.Worker(
        pool="threads",
        queues=[first],
        concurrency=sum(prefetch.values()),  # a thread for each chunk in hand
        hostname=f"{'+'.join(pool.residents)[:MOST_NODE_NAME]}@{worker}",
        loglevel=settings.log_level,
        quiet=True,
        without_mingle=True,
        without_gossip=True,
    )
    consumer.start()
    return int(consumer.exitcode or 0)


def _announce(sessions: Sessions, worker: str, pool: EnginePool) -> None:
    engines = [resident.engine for resident in pool.residents.values()]
    with transaction(sessions) as session:
        for name, resident in sorted(pool.residents.items()):
            workers.register(
                session, worker=worker, role="worker", model=name, revision=resident.engine.revision
            )
            answer_cache.note_engine(session, model=name, fingerprint=engine_fingerprint(resident))
    log.info(
        "worker_ready",
        models={engine.model: engine.revision for engine in engines},
        gpus=watch_gpus(),
    )


def _leave(sessions: Sessions, worker: str) -> None:
    try:
        with transaction(sessions) as session:
            workers.leave(session, worker=worker)
    except Exception:  # the row is only news; the dispatcher forgets silent workers
        log.warning("worker_left_unsaid")
    log.info("worker_stopped")
