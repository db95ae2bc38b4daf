"""A worker around any engines: takes chunks from the broker, drains on SIGTERM."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import Any

import structlog
from celery import Celery, signals

from app import telemetry
from app.config import Settings
from app.db import Sessions, make_engine, make_sessions, transaction
from app.images import image_limits
from app.loops import Loop
from app.objects import make_objects
from app.queue import make_celery
from app.store import workers
from workers.gpu import watch_gpus
from workers.leases import Leases
from workers.pictures import PictureReader
from workers.pool import EnginePool
from workers.queues import consume_apart, queue_names
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
    threads = settings.worker_threads * len(pool.residents)
    database = make_engine(
        settings.database_url.get_secret_value(),
        # Every chunk thread, the heartbeat, and one to spare.
        pool_size=threads + 2,
        application="worker",
    )
    sessions = make_sessions(database)
    objects = make_objects(settings)
    leases = Leases(sessions=sessions, worker=worker, settings=settings)
    heartbeat = Loop("heartbeat", leases.step, idle_s=settings.heartbeat_s)
    teller = Teller(connect(settings.redis_url.get_secret_value()))
    with ThreadPoolExecutor(2 * threads, thread_name_prefix="read") as readers:
        runner = Runner(
            sessions=sessions,
            pool=pool,
            leases=leases,
            read_image=PictureReader(objects=objects, limits=image_limits(settings)),
            readers=readers,
            settings=settings,
            worker=worker,
            teller=teller,
        )
        _announce(sessions, worker, pool)
        heartbeat.start()
        telemetry.serve_metrics(settings.metrics_port, role="worker")
        celery = make_celery(settings)
        register(celery, runner)
        try:
            return _consume(celery, settings, worker, pool)
        finally:
            pool.close()
            teller.close()
            heartbeat.stop()
            heartbeat.join(settings.heartbeat_s)
            _leave(sessions, worker)


def _consume(celery: Celery, settings: Settings, worker: str, pool: EnginePool) -> int:
    """Take chunks until told to stop. What still runs `drain_s` after that is handed back unfinished."""

    def close() -> None:
        log.warning("engine_closes")
        pool.close()  # what has not joined fails with engine_closed, which the runner hands back

    def drain(**_: object) -> None:
        log.info("worker_drains", within_s=settings.drain_s)
        last_call = Timer(settings.drain_s, close)
        last_call.daemon = True
        last_call.start()

    signals.worker_shutting_down.connect(drain, weak=False)
    first, *further = queue_names(celery)
    if further:
        consume_apart(celery)
    # Celery's own worker class takes its options by keyword only, untyped.
    consumer: Any = celery.Worker(
        pool="threads",
        queues=[first],
        concurrency=settings.worker_threads * (1 + len(further)),
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
        for engine in engines:
            workers.register(
                session, worker=worker, role="worker", model=engine.model, revision=engine.revision
            )
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
