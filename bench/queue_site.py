"""Servers of the benchmark's own, and vqueue's processes on a fresh database beside them."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from threading import Event
from uuid import uuid4

import psycopg2

from app.auth import Keys
from app.cli.local import prepare_stores
from app.config import Settings
from app.db import make_engine, make_sessions
from app.local.folder import DataFolder
from app.local.postgres import Postgres
from app.local.process import Program
from app.local.rabbitmq import RabbitMQ
from app.local.seaweed import ACCESS_KEY_ID, Seaweed
from app.local.servers import Broker
from app.local.supervisor import Supervisor
from app.local.valkey import Valkey
from bench.queue_lines import MODEL

# What a server of 16 GB would have. Commits wait for the disk (fsync, synchronous_commit), as by default.
POSTGRES = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}
MODULES = {
    "api": "app.main",
    "dispatcher": "app.dispatcher",
    "fetcher": "workers.fetcher",
    "worker": "bench.queue_worker",
}
READY = {
    "api": "Uvicorn running",
    "dispatcher": "dispatcher_ready",
    "fetcher": "fetcher_ready",
    "worker": "worker_ready",
}
PLAIN_DATABASE = 5  # of Valkey, as the broker of plain Celery


@dataclass(frozen=True)
class Servers:
    postgres: Postgres
    valkey: Valkey
    rabbitmq: RabbitMQ | None
    seaweed: Seaweed
    folder: DataFolder
    supervisor: Supervisor

    def broker_url(self, broker: Broker, database: int = 0) -> str:
        if broker is Broker.REDIS or self.rabbitmq is None:
            return self.valkey.url(database)
        return self.rabbitmq.url()

    def pids(self, broker: Broker) -> dict[str, int]:
        """The servers that a run on this broker uses, by role."""
        carrier = "rabbitmq" if broker is Broker.RABBITMQ else "valkey"
        names = {"postgres": "postgres", "broker": carrier, "s3": "seaweed"}
        return {role: self.supervisor.pid(name) for role, name in names.items()}


@dataclass(frozen=True)
class Site:
    """Where vqueue answers, by which key, and the pids of its processes by role."""

    url: str
    key: str
    database_url: str
    tenant_id: str
    pids: Mapping[str, int]
    start: Callable[[str], int]  # a further process of a role, such as worker.2, once it is ready; its pid


@contextmanager
def open_servers(brokers: Sequence[Broker]) -> Iterator[Servers]:
    """Fresh servers with data in a temporary folder, which goes at the end."""
    path = Path(tempfile.mkdtemp(prefix="vqueue-bench-"))
    path.chmod(0o711)  # PostgreSQL's own user has to pass through
    hurry = Event()
    hurry.set()  # the data is thrown away: no server needs its time to stop
    try:
        with DataFolder(path) as folder:
            supervisor = Supervisor(logs=path / "logs", say=_silent, keep_fd=folder.lock_fd, hurry=hurry)
            try:
                yield _started(folder, supervisor, brokers)
            finally:
                supervisor.stop()
    finally:
        rmtree(path, ignore_errors=True)


def _started(folder: DataFolder, supervisor: Supervisor, brokers: Sequence[Broker]) -> Servers:
    postgres = Postgres(folder, settings=POSTGRES)
    valkey, seaweed = Valkey(folder), Seaweed(folder)
    rabbitmq = RabbitMQ(folder) if Broker.RABBITMQ in brokers else None
    for server in (postgres, valkey, seaweed, rabbitmq):
        for program in server.prepare() if server else ():
            supervisor.start(program)
    return Servers(postgres, valkey, rabbitmq, seaweed, folder, supervisor)


@contextmanager
def open_site(
    servers: Servers,
    broker: Broker,
    roles: Sequence[str],
    modules: Mapping[str, str] = MODULES,
    **variables: str,
) -> Iterator[Site]:
    """Processes of vqueue on a database of their own, which is dropped at the end.

    Of several processes of one role all but the first have a number: worker, worker.2.
    """
    database = f"bench_{uuid4().hex[:8]}"
    servers.postgres.create_database(database)
    port = servers.folder.choose_port(f"api.{database}")
    settings = _variables(servers, broker, database, port) | variables
    with ExitStack() as stack:
        stack.callback(drop_database, servers, database)
        chosen = Settings(**settings)  # pyright: ignore[reportArgumentType] - texts, as in the environment
        prepare_stores(chosen)
        key, tenant_id = _make_key(chosen)
        hurry = Event()
        hurry.set()
        logs = servers.folder.path / "logs" / database
        supervisor = Supervisor(logs=logs, say=_silent, hurry=hurry)
        stack.callback(supervisor.stop)

        def start(role: str) -> int:
            supervisor.start(_program(role, modules[kind_of(role)], settings, logs))
            return supervisor.pid(role)

        pids = {role: start(role) for role in roles}
        yield Site(f"http://127.0.0.1:{port}/v1", key, servers.postgres.url(database), tenant_id, pids, start)


def _variables(servers: Servers, broker: Broker, database: str, port: int) -> dict[str, str]:
    return {
        "database_url": servers.postgres.url(database),
        "broker_url": servers.broker_url(broker),
        "redis_url": servers.valkey.url(1),
        "s3_endpoint_url": servers.seaweed.endpoint_url,
        "s3_access_key_id": ACCESS_KEY_ID,
        "s3_secret_access_key": servers.seaweed.secret_access_key,
        "s3_bucket": "bench",
        "model": MODEL,
        "port": str(port),
        "batch_max_lines": str(10**8),
        "backlog_max_jobs": str(10**8),
        "file_max_bytes": str(10**11),
    }


def _silent(_: str) -> None:
    """Whatever is killed here was not asked to stop in time on purpose."""


def kind_of(role: str) -> str:
    """What worker.2 is: a worker."""
    return role.partition(".")[0]


def _program(role: str, module: str, settings: Mapping[str, str], logs: Path) -> Program:
    """Ready when it says so."""
    variables = {f"VQUEUE_{name.upper()}": value for name, value in settings.items()}
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    program = Program(role, (sys.executable, "-m", module), environment)
    return replace(program, is_ready=lambda: READY[kind_of(role)] in (logs / f"{role}.log").read_text())


def _make_key(settings: Settings) -> tuple[str, str]:
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="bench")
    key = Keys(sessions=make_sessions(engine)).create(tenant="bench", name="bench")
    engine.dispose()
    return key.secret, key.tenant_id


def drop_database(servers: Servers, database: str) -> None:
    with closing(psycopg2.connect(servers.postgres.url("postgres"))) as connection:
        connection.autocommit = True
        connection.cursor().execute(f'DROP DATABASE "{database}" WITH (FORCE)')
