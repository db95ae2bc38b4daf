"""`vqueue up`: the whole of vqueue on one machine, under one supervisor."""

import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Annotated

import typer

from app.auth import Keys
from app.cli.settings import KEY_FILE, URL_FILE, checked_settings
from app.config import Settings, read_settings
from app.db import make_engine, make_sessions
from app.errors import Unauthorized, WorkError
from app.local.folder import DEFAULT_DATA, STATE_FILE, DataFolder, FolderBusy, is_free, write_private
from app.local.probes import http_status
from app.local.process import Program
from app.local.servers import Broker, LocalServers
from app.local.supervisor import Interrupted, StartFailed, Supervisor
from app.migrate import migrate
from app.objects import make_objects

FIRST_TENANT = "default"
DEMO_MODEL = Path(__file__).resolve().parents[2] / "models" / "demo"
SPARE_S = 10.0  # over a process's own drain, before it is killed


@dataclass(frozen=True)
class Plan:
    """What to run, and where."""

    data: Path
    port: int
    workers: int
    broker: Broker


def up(
    data: Annotated[Path, typer.Option(help="The folder that keeps everything.")] = DEFAULT_DATA,
    port: Annotated[
        int, typer.Option(envvar="VQUEUE_PORT", min=1, max=65_535, help="The API's port on 127.0.0.1.")
    ] = 8000,
    workers: Annotated[int, typer.Option(min=0, help="How many workers.")] = 1,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="The same as --workers 0.")] = False,
    broker: Annotated[Broker, typer.Option(help="What carries the messages.")] = Broker.REDIS,
) -> None:
    """Start the servers, the API, the dispatcher, the fetcher and workers here; Ctrl-C stops them all.

    Servers that VQUEUE_DATABASE_URL, VQUEUE_BROKER_URL, VQUEUE_REDIS_URL and VQUEUE_S3_ENDPOINT_URL (or
    S3's two keys) name are used instead of local ones.
    """
    checked_settings()
    try:
        if not data.exists():
            _need(port)  # before anything is made; a folder in use is the better message where there is one
        with DataFolder(data) as folder:
            run(Plan(folder.path, port, 0 if no_worker else workers, broker), folder)
    except Interrupted:
        _say("stopped before everything was up")
    except (FolderBusy, StartFailed, WorkError) as error:
        _say(str(error))
        raise typer.Exit(1) from error


def run(plan: Plan, folder: DataFolder) -> None:
    """Start everything, watch over it until SIGINT or SIGTERM, stop everything."""
    _need(plan.port)
    stopping, hurry = Event(), Event()
    _listen_to_signals(stopping, hurry)
    supervisor = Supervisor(
        logs=folder.subfolder("logs"), say=_say, keep_fd=folder.lock_fd, stopping=stopping, hurry=hurry
    )
    try:
        _say(f"starting the servers, with data in {plan.data}")
        servers = LocalServers(supervisor, folder, plan.broker, dict(os.environ))
        started = servers.start()
        os.environ.update(started)  # how our processes, and the settings below, find them
        settings = read_settings()
        prepare_stores(settings)
        store = started.get("VQUEUE_S3_ENDPOINT_URL")
        if store is not None:
            make_named_buckets(settings)
        key, is_new = first_key(settings, plan.data / KEY_FILE)
        write_private(plan.data / URL_FILE, f"http://127.0.0.1:{plan.port}/v1")
        for stage in processes(plan, settings):
            _say(f"starting {', '.join(program.name for program in stage)}")
            supervisor.start(*stage)
        _say(_summary(plan, key if is_new else None, store))
        supervisor.run()
    finally:
        _say("stopping (a second Ctrl-C kills what is left)")
        supervisor.stop()
        _say("stopped")


def _need(port: int) -> None:
    if not is_free(port):
        raise StartFailed(f"port {port} is taken; choose another with --port")


def prepare_stores(settings: Settings) -> None:
    """Bring the schema and the bucket to where our processes expect them."""
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="up")
    migrate(engine)
    engine.dispose()
    objects = make_objects(settings, connections=1)
    objects.ensure_bucket()
    objects.close()


def make_named_buckets(settings: Settings) -> None:
    """In our own object store nobody else makes the buckets that sweeps and `s3://` images are allowed."""
    for bucket in {*settings.s3_source_buckets, *settings.sweep_buckets}:
        objects = make_objects(settings.model_copy(update={"s3_bucket": bucket}), connections=1)
        objects.ensure_bucket()
        objects.close()


def first_key(settings: Settings, file: Path) -> tuple[str, bool]:
    """The key in the data folder, and whether it was made just now (first start, or another database)."""
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="up")
    keys = Keys(sessions=make_sessions(engine))
    try:
        if file.exists():
            try:
                keys.recognise(file.read_text())
                return file.read_text(), False
            except Unauthorized:
                _say(f"the key in {file} opens nothing in this database; making another")
        key = keys.create(tenant=FIRST_TENANT, name="made by vqueue up").secret
        write_private(file, key)
        return key, True
    finally:
        engine.dispose()


def processes(plan: Plan, settings: Settings) -> list[list[Program]]:
    """Our own processes, stage by stage. They stop in reverse: no new work, no new chunks, then the drain."""
    names = ["worker"] if plan.workers == 1 else [f"worker-{number + 1}" for number in range(plan.workers)]
    api = f"http://127.0.0.1:{plan.port}/healthz"
    environment = os.environ | {"VQUEUE_HOST": "127.0.0.1", "VQUEUE_PORT": str(plan.port)}
    environment.setdefault("VQUEUE_DATA_DIR", str(plan.data))
    if not settings.models and "model" not in settings.model_fields_set and DEMO_MODEL.is_dir():
        environment["VQUEUE_MODEL"] = str(DEMO_MODEL)  # whatever folder we are in
    drain_s = settings.drain_s + SPARE_S

    def program(name: str, command: str) -> Program:
        return Program(
            name, (sys.executable, "-m", "app.cli.main", command), environment, stop_within_s=drain_s
        )

    stages = [
        [replace(program(name, "worker"), final_code=os.EX_CONFIG) for name in names],
        [program("fetcher", "fetcher")],
        [program("dispatcher", "dispatcher")],
        [replace(program("api", "api"), is_ready=lambda: http_status(api) == 200)],
    ]
    return [stage for stage in stages if stage]


def _listen_to_signals(stopping: Event, hurry: Event) -> None:
    def note(_signal: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            hurry.set()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)


def _summary(plan: Plan, new_key: str | None, store: str | None) -> str:
    key = f"{new_key} (also in {plan.data}/{KEY_FILE})" if new_key else f"in {plan.data}/{KEY_FILE}"
    own_store = f"  S3       {store} (key id vqueue, secret in {plan.data}/{STATE_FILE})\n" if store else ""
    return (
        "vqueue is up\n"
        f"  API      http://127.0.0.1:{plan.port}/v1\n"
        f"  console  http://127.0.0.1:{plan.port}/ (sign in with the API key)\n"
        f"  API key  {key}\n"
        f"{own_store}"
        f"  logs     {plan.data}/logs\n"
        "  stop     Ctrl-C"
    )


def _say(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()
