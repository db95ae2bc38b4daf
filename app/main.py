"""Builds and runs the web app: what it consists of, wired by hand, and its one error handler."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine

from app import heap, telemetry
from app.answers import Answers
from app.audit import AuditLog
from app.auth import Keys
from app.batches import Batches, default_brake, make_batches
from app.chats import Chats
from app.clusters import Clusters
from app.config import Settings, read_settings
from app.db import give_up_waiting, make_engine, make_sessions
from app.exports.opening import Exports
from app.files import Files
from app.hearing import Ear, connect
from app.jobs import Jobs
from app.kept import KeptAnswers
from app.limits import make_limits
from app.objects import ObjectStore, make_objects
from app.placing import Placer
from app.posting import make_poster
from app.progress import Progress
from app.readiness import Check, readiness_checks
from app.retrying import Retries
from app.routes.answers import answer_routes
from app.routes.batches import batch_routes
from app.routes.caller import caller_of
from app.routes.chat import chat_routes
from app.routes.clusters import cluster_routes
from app.routes.edge import Edge
from app.routes.errors import add_error_handlers
from app.routes.exports import export_routes
from app.routes.files import file_routes
from app.routes.health import health_routes
from app.routes.jobs import job_routes
from app.routes.kept import kept_routes
from app.routes.metrics import metrics_routes
from app.routes.models import model_routes
from app.routes.openapi import describe, operation_id
from app.routes.progress import progress_routes
from app.routes.responses import response_routes
from app.routes.sweeps import sweep_routes
from app.routes.tenants import tenant_routes
from app.routes.usage import usage_routes
from app.routes.webhooks import webhook_routes
from app.served import ServedModels
from app.sweeps.desk import Sweeps
from app.sweeps.sources import Sources
from app.throttle import Throttle
from app.usage import Usage
from app.webhooks import Webhooks

# Longer than the idle time of common load balancers (60 s), so that they close connections and not we.
KEEP_ALIVE_S = 75
# Requests at once; more are answered 503 by the server itself.
CONCURRENT = 1000
# Longer than a wait for a lock, and than any statement of ours takes.
STATEMENT_TIMEOUT_MS = 15_000
# Longer than that: for a server that does not even refuse.
ANSWER_WITHIN_S = 20.0
# Uploads (16) and images of data URLs (8) at once, and as many downloads.
OBJECT_CONNECTIONS = 48


@dataclass(frozen=True)
class Services:
    """What the routes call. Nothing connects before the first request needs it."""

    engine: Engine
    objects: ObjectStore
    keys: Keys
    throttle: Throttle
    files: Files
    batches: Batches
    progress: Progress
    exports: Exports
    answers: Answers
    retries: Retries
    placer: Placer
    jobs: Jobs
    chats: Chats
    audit: AuditLog
    usage: Usage
    kept: KeptAnswers
    clusters: Clusters
    webhooks: Webhooks
    sweeps: Sweeps
    models: ServedModels
    checks: tuple[Check, ...]

    def close(self) -> None:
        self.placer.close()
        self.engine.dispose()
        self.objects.close()


def wire(settings: Settings) -> Services:
    engine = make_engine(
        settings.database_url.get_secret_value(),
        pool_size=settings.database_pool_size,
        application="api",
        statement_timeout_ms=STATEMENT_TIMEOUT_MS,
    )
    objects = make_objects(settings, connections=OBJECT_CONNECTIONS)
    sessions = make_sessions(engine)
    limits = make_limits(sessions, settings)
    placer = Placer(sessions=sessions, objects=objects, settings=settings)
    jobs = Jobs(sessions=sessions, placer=placer, limits=limits, settings=settings)
    batches = make_batches(sessions, limits, settings)
    sources = Sources(objects=objects, settings=settings)
    ear = Ear(connect(settings.redis_url.get_secret_value()))
    return Services(
        engine=engine,
        objects=objects,
        keys=Keys(sessions=sessions, requests_per_minute=settings.requests_per_minute),
        throttle=Throttle(settings.redis_url.get_secret_value()),
        files=Files(
            sessions=sessions,
            objects=objects,
            limits=limits,
            batch_max_bytes=settings.file_max_bytes,
            table_max_bytes=settings.table_max_bytes,
            longest_s=settings.retention_files_s,
        ),
        batches=batches,
        progress=Progress(sessions=sessions),
        exports=Exports(sessions=sessions, objects=objects, image_max_bytes=settings.image_max_bytes),
        answers=Answers(sessions=sessions),
        retries=Retries(sessions=sessions, limits=limits, brake=default_brake(settings)),
        placer=placer,
        jobs=jobs,
        chats=Chats(sessions=sessions, jobs=jobs, ear=ear, settings=settings),
        audit=AuditLog(sessions=sessions),
        usage=Usage(sessions=sessions, prices=settings.prices),
        kept=KeptAnswers(sessions=sessions),
        clusters=Clusters(sessions=sessions),
        webhooks=Webhooks(sessions=sessions, poster=make_poster(settings)),
        sweeps=Sweeps(sessions=sessions, batches=batches, sources=sources, settings=settings),
        models=ServedModels(names=settings.model_names),
        checks=readiness_checks(
            engine=engine,
            objects=objects,
            broker_url=settings.broker_url.get_secret_value(),
            models=settings.served_models,
            live_s=settings.lease_s,
        ),
    )


def build_app(services: Services) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        telemetry.UP_SINCE.labels("api").set_to_current_time()
        watching = asyncio.create_task(services.chats.run())
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await services.chats.close()
        services.close()

    app = FastAPI(
        title="vqueue",
        version=version("vqueue"),
        lifespan=lifespan,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    app.router.redirect_slashes = False  # a redirect would name the host that the client wrote
    app.add_middleware(Edge)
    add_error_handlers(app)
    caller = caller_of(services.keys, services.throttle)
    for routes in (
        file_routes(files=services.files, caller=caller),
        batch_routes(batches=services.batches, caller=caller),
        progress_routes(progress=services.progress, retries=services.retries, caller=caller),
        export_routes(exports=services.exports, caller=caller),
        answer_routes(answers=services.answers, caller=caller),
        job_routes(jobs=services.jobs, caller=caller),
        chat_routes(chats=services.chats, caller=caller),
        response_routes(chats=services.chats, caller=caller),
        tenant_routes(keys=services.keys, audit=services.audit, caller=caller),
        usage_routes(usage=services.usage, caller=caller),
        kept_routes(kept=services.kept, caller=caller),
        cluster_routes(clusters=services.clusters, caller=caller),
        webhook_routes(webhooks=services.webhooks, caller=caller),
        sweep_routes(sweeps=services.sweeps, caller=caller),
        model_routes(models=services.models, caller=caller),
        health_routes(services.checks),
        metrics_routes(),
    ):
        app.include_router(routes)
    describe(app)
    return app


def main() -> None:
    settings = read_settings()
    telemetry.configure_logs(log_format=settings.log_format, level=settings.log_level, role="api")
    # The server stops gracefully on SIGTERM, and then raises it again: a stop that was asked for is no fault.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    give_up_waiting(ANSWER_WITHIN_S)
    app = build_app(wire(settings))
    heap.settle()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,  # Edge writes one line per request, without ids and query strings
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(settings.drain_s),
        limit_concurrency=CONCURRENT,
    )


if __name__ == "__main__":
    main()
