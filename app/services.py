"""What the API's routes call, wired by hand."""

from dataclasses import dataclass

from sqlalchemy import Engine

from app.answers import Answers
from app.audit import AuditLog
from app.auth import Keys
from app.batches import Batches, default_brake, make_batches
from app.chats import Chats
from app.clusters import Clusters
from app.config import Settings
from app.console.compare import Comparisons
from app.console.operations import OperationsBoard
from app.console.results import Results
from app.console.sessions import ConsoleSessions
from app.console.sweep_board import SweepBoard
from app.console.thumbnails import Thumbnails
from app.db import make_engine, make_sessions
from app.exports.opening import Exports
from app.files import Files
from app.hearing import Ear, connect
from app.images import image_limits
from app.jobs import Jobs
from app.kept import KeptAnswers
from app.limits import make_limits
from app.objects import ObjectStore, make_objects
from app.placing import Placer
from app.posting import make_poster
from app.previews import Previews
from app.progress import Progress
from app.readiness import Check, readiness_checks
from app.retrying import Retries
from app.reviewing import ReviewQueue
from app.served import ServedModels
from app.sweeps.desk import Sweeps
from app.sweeps.sources import Sources
from app.throttle import Throttle
from app.usage import Usage
from app.webhooks import Webhooks

# Longer than a wait for a lock, and than any statement of ours takes.
STATEMENT_TIMEOUT_MS = 15_000
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
    review_queue: ReviewQueue
    retries: Retries
    placer: Placer
    jobs: Jobs
    previews: Previews
    chats: Chats
    audit: AuditLog
    usage: Usage
    kept: KeptAnswers
    clusters: Clusters
    webhooks: Webhooks
    sweeps: Sweeps
    models: ServedModels
    console: ConsoleSessions
    thumbnails: Thumbnails
    results: Results
    comparisons: Comparisons
    sweep_board: SweepBoard
    operations: OperationsBoard
    settings: Settings
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
    files = Files(
        sessions=sessions,
        objects=objects,
        limits=limits,
        batch_max_bytes=settings.file_max_bytes,
        table_max_bytes=settings.table_max_bytes,
        longest_s=settings.retention_files_s,
    )
    keys = Keys(sessions=sessions, requests_per_minute=settings.requests_per_minute)
    ear = Ear(connect(settings.redis_url.get_secret_value()))
    return Services(
        engine=engine,
        objects=objects,
        keys=keys,
        throttle=Throttle(settings.redis_url.get_secret_value()),
        files=files,
        batches=batches,
        progress=Progress(sessions=sessions),
        exports=Exports(sessions=sessions, objects=objects, image_max_bytes=settings.image_max_bytes),
        answers=Answers(sessions=sessions),
        review_queue=ReviewQueue(sessions=sessions),
        retries=Retries(sessions=sessions, limits=limits, brake=default_brake(settings)),
        placer=placer,
        jobs=jobs,
        previews=Previews(sessions=sessions, files=files, jobs=jobs, objects=objects, settings=settings),
        chats=Chats(sessions=sessions, jobs=jobs, ear=ear, settings=settings),
        audit=AuditLog(sessions=sessions),
        usage=Usage(sessions=sessions, prices=settings.prices),
        kept=KeptAnswers(sessions=sessions),
        clusters=Clusters(sessions=sessions),
        webhooks=Webhooks(sessions=sessions, poster=make_poster(settings)),
        sweeps=Sweeps(sessions=sessions, batches=batches, sources=sources, settings=settings),
        models=ServedModels(names=settings.model_names),
        console=ConsoleSessions(sessions=sessions, keys=keys, lasts_s=settings.console_session_s),
        thumbnails=Thumbnails(sessions=sessions, objects=objects, limits=image_limits(settings)),
        results=Results(sessions=sessions),
        comparisons=Comparisons(sessions=sessions),
        sweep_board=SweepBoard(sessions=sessions),
        operations=OperationsBoard(sessions=sessions, live_s=settings.lease_s),
        settings=settings,
        checks=readiness_checks(
            engine=engine,
            objects=objects,
            broker_url=settings.broker_url.get_secret_value(),
            models=settings.served_models,
            live_s=settings.lease_s,
        ),
    )
