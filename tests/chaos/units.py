"""What can be struck: each server and each process of ours, under a name, started again after its death."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.config import Settings
from app.local.folder import DataFolder
from app.local.postgres import Postgres
from app.local.probes import http_status
from app.local.process import Process, Program
from app.local.rabbitmq import RabbitMQ
from app.local.seaweed import ACCESS_KEY_ID, Seaweed
from app.local.valkey import Valkey
from tests.processes import environment
from tests.servers import S3Place
from tests.waiting import eventually

READY_S = 120


class Unit:
    """One program that is meant to be up. What it starts dies with it."""

    def __init__(self, role: str, program: Program, logs: Path) -> None:
        self.role = role
        self.program = program
        self.log = logs / f"{program.name}.log"
        self.own_deaths: list[str] = []
        self._process: Process | None = None
        self._log_start = 0

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def holder(self) -> str:
        """The name under which a worker takes leases."""
        return f"{socket.gethostname()}-{self.pid}"

    @property
    def up(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = Process(self.program, log=self.log)

    def kill(self) -> None:
        """SIGKILL; nothing is left of it when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self, number: signal.Signals, within_s: float = 20) -> None:
        """Ask it to end, and kill what is left."""
        if self._process is not None:
            self.send(number)
            self._process.wait(within_s)
            self.kill()

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ready(self) -> bool:
        return self._process is not None and self._process.exit_code() is None and self.program.is_ready()

    def says(self, event: str) -> bool:
        """Whether the log has this event of ours since the last start."""
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return f'"event": "{event}"'.encode() in log.read()

    def keep_up(self) -> None:
        """Start it again if it ended by itself, as a supervisor would; such deaths are remembered."""
        if self._process is not None and (code := self._process.exit_code()) is not None:
            self.own_deaths.append(f"{self.name} ended by itself ({code}): {self._process.last_error()}")
            self.kill()
            self.start()


@dataclass(frozen=True)
class Servers:
    """The servers of a run, as units and as places."""

    units: Mapping[str, Unit]
    mapper: Unit | None  # RabbitMQ's helper, which nobody strikes
    postgres: Postgres
    broker_url: str
    redis_url: str
    s3: Callable[[str], S3Place]
    valkey_data: Path

    def close(self) -> None:
        for unit in [*self.units.values(), self.mapper]:
            if unit is not None:
                unit.kill()


def start_servers(folder: DataFolder, *, broker: str) -> Servers:
    """Start them in a data folder. RabbitMQ only where it is the broker; Valkey is the cache in any case."""
    logs = folder.subfolder("logs")
    postgres, valkey, seaweed = Postgres(folder), Valkey(folder), Seaweed(folder)
    servers = {"postgres": postgres, "valkey": valkey, "s3": seaweed}
    units = {role: Unit(role, server.prepare()[0], logs) for role, server in servers.items()}
    mapper, broker_url = None, valkey.url(0)
    if broker == "rabbitmq":
        rabbitmq = RabbitMQ(folder)
        helper, server = rabbitmq.prepare()
        mapper = Unit("epmd", helper, logs)
        mapper.start()
        eventually(mapper.ready)
        units["rabbitmq"] = Unit("rabbitmq", server, logs)
        broker_url = rabbitmq.url()
    for unit in units.values():
        unit.start()
    for unit in units.values():
        eventually(unit.ready, within_s=READY_S)

    def place(bucket: str) -> S3Place:
        return S3Place(seaweed.endpoint_url, "us-east-1", bucket, ACCESS_KEY_ID, seaweed.secret_access_key)

    data = folder.subfolder("valkey") / "appendonlydir"
    return Servers(units, mapper, postgres, broker_url, valkey.url(1), place, data)


MODULES = {
    "api": ("app.main", ""),
    "dispatcher": ("app.dispatcher", "dispatcher_ready"),
    "fetcher": ("workers.fetcher", "fetcher_ready"),
    "worker": ("tests.chaos.worker", "worker_ready"),
}


def own_units(settings: Settings, logs: Path, *, variables: Mapping[str, str]) -> list[Unit]:
    """The processes of one vqueue: an API, two dispatchers, a fetcher, two workers."""
    names = ("api", "dispatcher-1", "dispatcher-2", "fetcher", "worker-1", "worker-2")
    return [own_unit(name, settings, logs, variables=variables) for name in names]


def own_unit(
    name: str, settings: Settings, logs: Path, *, variables: Mapping[str, str], checkout: Path | None = None
) -> Unit:
    """A process of the role that its name begins with, of this checkout or of another one."""
    role = name.partition("-")[0]
    module, event = MODULES[role]
    env = {**environment(settings), **variables}
    if checkout is not None:
        env["PYTHONPATH"] = str(checkout)
    program = Program(name, (sys.executable, "-m", module), env, cwd=checkout)
    made = Unit(role, program, logs)
    healthz = f"http://127.0.0.1:{settings.port}/healthz"
    made.program = replace(
        program,
        is_ready=(lambda: http_status(healthz) == 200) if role == "api" else (lambda: made.says(event)),
    )
    return made
