"""The dispatcher process: ingest, dispatch with the reaper, watch, sweep and finalize, each in its loop."""

import signal
from threading import Event

import structlog

from app import heap, telemetry, tracing
from app.config import Settings, read_settings
from app.db import make_engine, make_sessions
from app.deleter import Deleter
from app.deliveries import Deliveries
from app.dispatch import Dispatcher
from app.finalize import Finalize
from app.ingest import Ingest
from app.loops import Loop
from app.objects import make_objects
from app.orphans import Orphans
from app.posting import make_poster
from app.queue import ChunkSender, is_amqp, make_celery
from app.retention import Retention
from app.shadows import Shadows
from app.store import notices
from app.store.notices import Listener
from app.sweep import Sweeper
from app.sweeps.due import Due
from app.sweeps.runs import make_runs
from app.sweeps.stalls import Stalls
from app.waking import waking_loop
from app.watch import Watch

log = structlog.get_logger()

# What is old enough goes a minute later; what is doomed, at once; and a bucket is listed at leisure.
RETENTION_POLL_S, DELETE_POLL_S, ORPHAN_PAGE_S = 60.0, 1.0, 1.0
WEBHOOK_POLL_S = 1.0
SWEEP_POLL_S, STALL_POLL_S = 1.0, 15.0
SHADOW_POLL_S = 5.0

# A loop has one transaction open at most; some have a thread or two beside them.
CONNECTIONS = 16
# Written within seconds: these never wait behind the files of a batch of a million.
SMALL_BATCH_JOBS = 20_000


def build_loops(settings: Settings, stopping: Event) -> list[Loop]:
    """The loops of one dispatcher process, not started yet.

    `stopping` ends ingest and finalize between two blocks.
    """
    database = make_engine(
        settings.database_url.get_secret_value(),
        pool_size=max(CONNECTIONS, settings.database_pool_size),
        application="dispatcher",
    )
    sessions = make_sessions(database)
    objects = make_objects(settings)
    amqp = is_amqp(settings.broker_url.get_secret_value())
    sender = ChunkSender(celery=make_celery(settings), amqp=amqp)
    dispatcher = Dispatcher(sessions=sessions, sender=sender, settings=settings)
    ingest = Ingest(sessions=sessions, objects=objects, settings=settings, stopping=stopping)
    sweeper = Sweeper(sessions=sessions)
    watch = Watch(sessions=sessions, every_s=settings.heartbeat_s)
    finalize, finalize_small = (
        Finalize(sessions=sessions, objects=objects, settings=settings, stopping=stopping, most_jobs=most)
        for most in (None, SMALL_BATCH_JOBS)
    )
    retention = Retention(sessions=sessions, settings=settings, stopping=stopping)
    deleter = Deleter(sessions=sessions, objects=objects)
    deliveries = Deliveries(sessions=sessions, poster=make_poster(settings))
    orphans = Orphans(sessions=sessions, objects=objects)
    runs = make_runs(settings, sessions=sessions, objects=objects, stopping=stopping)
    shadows = Shadows(sessions=sessions, shadows=settings.shadows, tenant=settings.shadow_tenant)
    idle_s = settings.dispatch_poll_s
    ready = Event()
    return [
        waking_loop(Listener(database, notices.JOBS), ready),
        Loop("dispatch", dispatcher.step, idle_s=idle_s, wake=ready),
        Loop("ingest", ingest.step, idle_s=idle_s),
        Loop("sweep", sweeper.step, idle_s=idle_s),
        Loop("watch", watch.step, idle_s=settings.heartbeat_s),
        Loop("finalize", finalize.step, idle_s=idle_s),
        Loop("retention", retention.step, idle_s=RETENTION_POLL_S),
        Loop("delete", deleter.step, idle_s=DELETE_POLL_S),
        Loop("orphans", orphans.step, idle_s=ORPHAN_PAGE_S),
        Loop("webhooks", deliveries.step, idle_s=WEBHOOK_POLL_S),
        Loop("sweeps_due", Due(sessions=sessions).step, idle_s=SWEEP_POLL_S),
        Loop("sweep_runs", runs.step, idle_s=SWEEP_POLL_S),
        Loop("sweep_stalls", Stalls(sessions=sessions).step, idle_s=STALL_POLL_S),
        # Also where none are made any more: those of batches that are deleted go, too.
        Loop("shadows", shadows.step, idle_s=SHADOW_POLL_S),
        Loop("finalize_small", finalize_small.step, idle_s=idle_s),
    ]


def serve(settings: Settings) -> None:
    """Run the loops until SIGTERM or SIGINT, then let each end the step it is in."""
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    loops = build_loops(settings, stopping)
    heap.settle()
    for loop in loops:
        loop.start()
    telemetry.serve_metrics(settings.metrics_port, role="dispatcher")
    log.info("dispatcher_ready")
    stopping.wait()
    for loop in loops:
        loop.stop()
    ended = [loop.join(settings.drain_s) for loop in loops]
    log.info("dispatcher_stopped", clean=all(ended))


def main() -> None:
    settings = read_settings()
    telemetry.configure_logs(log_format=settings.log_format, level=settings.log_level, role="dispatcher")
    tracing.set_up(settings, role="dispatcher")
    serve(settings)


if __name__ == "__main__":
    main()
