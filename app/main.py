"""Builds and runs the web app: its routes over the services, and its one error handler."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import uvicorn
from fastapi import FastAPI

from app import descriptors, heap, telemetry, tracing
from app.config import read_settings
from app.console.rendering import Renderer
from app.db import give_up_waiting
from app.routes.answers import answer_routes
from app.routes.batches import batch_routes
from app.routes.caller import caller_of
from app.routes.chat import chat_routes
from app.routes.clusters import cluster_routes
from app.routes.connections import PatientProtocol
from app.routes.console import console_routes
from app.routes.console.desk import Desk
from app.routes.edge import Edge
from app.routes.errors import Answering
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
from app.routes.uploads import Uploads
from app.routes.usage import usage_routes
from app.routes.webhooks import webhook_routes
from app.services import Services, wire

# Longer than the idle time of common load balancers (60 s), so that they close connections and not we.
KEEP_ALIVE_S = 75
# Longer than a statement may take (`services`): for a server that does not even refuse.
ANSWER_WITHIN_S = 20.0


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
    desk = Desk(renderer=Renderer(), sessions=services.console, throttle=services.throttle)
    answering = Answering(desk.error_page)
    answering.add_to(app)
    app.add_middleware(Edge, answering=answering)
    uploads = Uploads(services.files)
    caller = caller_of(services.keys, services.throttle)
    for routes in (
        file_routes(files=services.files, uploads=uploads, caller=caller),
        batch_routes(batches=services.batches, caller=caller),
        progress_routes(progress=services.progress, retries=services.retries, caller=caller),
        export_routes(exports=services.exports, caller=caller),
        answer_routes(answers=services.answers, queue=services.review_queue, caller=caller),
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
        console_routes(services, desk, uploads),
    ):
        app.include_router(routes)
    describe(app)
    return app


def main() -> None:
    settings = read_settings()
    telemetry.configure_logs(log_format=settings.log_format, level=settings.log_level, role="api")
    tracing.set_up(settings, role="api")
    # The server stops gracefully on SIGTERM, and then raises it again: a stop that was asked for is no fault.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    give_up_waiting(ANSWER_WITHIN_S)
    app = build_app(wire(settings))
    heap.settle()
    descriptors.open_many()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,  # Edge writes one line per request, without ids and query strings
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(settings.drain_s),
        http=PatientProtocol,
    )


if __name__ == "__main__":
    main()
