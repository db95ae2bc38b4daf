"""The dispatcher process: ingest, dispatch with the reaper, sweep and finalize, each a loop of its own."""

import signal
from threading import Event

import structlog

from app import telemetry
from app.config import Settings, read_settings
from app.db import make_engine, make_sessions
from app.dispatch import Dispatcher
from app.finalize import Finalize
from app.ingest import Ingest
from app.loops import Loop
from app.objects import make_objects
from app.queue import ChunkSender, is_amqp, make_celery
from app.store import notices
from app.store.notices import Listener
from app.sweep import Sweeper
from app.waking import waking_loop

log = structlog.get_logger()


def build_loops(settings: Settings, stopping: Event) -> list[Loop]:
    """The loops of one dispatcher process, not started yet.

    `stopping` ends ingest and finalize between two blocks.
    """
    database = make_engine(
        settings.database_url.get_secret_value(),
        pool_size=max(4, settings.database_pool_size),
        application="dispatcher",
    )
    sessions = make_sessions(database)
    objects = make_objects(settings)
    amqp = is_amqp(settings.broker_url.get_secret_value())
    sender = ChunkSender(celery=make_celery(settings), amqp=amqp)
    dispatcher = Dispatcher(sessions=sessions, sender=sender, settings=settings)
    ingest = Ingest(sessions=sessions, objects=objects, settings=settings, stopping=stopping)
    sweeper = Sweeper(sessions=sessions)
    finalize = Finalize(sessions=sessions, objects=objects, settings=settings, stopping=stopping)
    idle_s = settings.dispatch_poll_s
    ready = Event()
    return [
        waking_loop(Listener(database, notices.JOBS), ready),
        Loop("dispatch", dispatcher.step, idle_s=idle_s, wake=ready),
        Loop("ingest", ingest.step, idle_s=idle_s),
        Loop("sweep", sweeper.step, idle_s=idle_s),
        Loop("finalize", finalize.step, idle_s=idle_s),
    ]


def serve(settings: Settings) -> None:
    """Run the loops until SIGTERM or SIGINT, then let each end the step it is in."""
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    loops = build_loops(settings, stopping)
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
    serve(settings)


if __name__ == "__main__":
    main()
