"""Runs plain Celery over a part of a batch file, from the first line read to the last row."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg2

from app.local.servers import Broker
from bench.queue_plain import TABLE
from bench.queue_site import PLAIN_DATABASE, Servers, drop_database
from bench.queue_usage import Meter, per_1000

POLL_S = 0.1
SILENT_S = 60.0
# The sequence is cheap to ask, but runs ahead of the commits.
COUNT = """
SELECT CASE WHEN last_value < %s THEN last_value ELSE (SELECT count(*) FROM results) END
FROM results_id_seq
"""


@dataclass(frozen=True)
class PlainRun:
    """`cpu` in seconds by role."""

    jobs: int
    seconds: float
    cpu: Mapping[str, float]

    @property
    def jobs_s(self) -> float:
        return self.jobs / self.seconds

    def told(self, where: str) -> str:
        usage = per_1000(self.cpu, self.jobs, own=("worker", "producer"))
        return f"plain Celery {where}, {self.jobs} jobs: {self.jobs_s:.0f} jobs/s\n  {usage}"


def together(runs: list[PlainRun]) -> PlainRun:
    cpu = {role: sum(run.cpu[role] for run in runs) for role in runs[0].cpu}
    return PlainRun(sum(run.jobs for run in runs), sum(run.seconds for run in runs), cpu)


@contextmanager
def _process(log: Path, *arguments: str, **variables: str) -> Iterator["Child"]:
    command = [sys.executable, "-m", "bench.queue_plain", *arguments]
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class Child:
    """A process that says when it is ready, and begins when it is told."""

    process: "subprocess.Popen[bytes]"

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError("plain Celery did not start")

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


def run_plain(servers: Servers, broker: Broker, file: Path, start: int, jobs: int) -> PlainRun:
    database = f"plain_{uuid4().hex[:8]}"
    servers.postgres.create_database(database)
    url = servers.postgres.url(database)
    variables = {
        "PLAIN_BROKER_URL": servers.broker_url(broker, PLAIN_DATABASE),
        "PLAIN_DATABASE_URL": url,
    }
    log = servers.folder.path / "logs" / f"{database}.log"
    try:
        with closing(psycopg2.connect(url)) as connection:
            connection.autocommit = True
            connection.cursor().execute(TABLE)
            with (
                _process(log, "work", **variables) as worker,
                _process(log, "publish", str(file), str(start), str(start + jobs), **variables) as producer,
            ):
                worker.await_ready()
                producer.await_ready()
                own = {"worker": worker.process.pid, "producer": producer.process.pid}
                meter, started = Meter.start({**own, **servers.pids(broker)}), time.perf_counter()
                producer.begin()
                _await_rows(connection, jobs)
                return PlainRun(jobs, time.perf_counter() - started, meter.read())
    finally:
        drop_database(servers, database)


def _await_rows(connection: "psycopg2.extensions.connection", jobs: int) -> None:
    cursor, found, moved = connection.cursor(), 0, time.perf_counter()
    while found < jobs:
        time.sleep(POLL_S)
        cursor.execute(COUNT, (jobs,))
        (now,) = cursor.fetchone() or (0,)
        if now > found:
            found, moved = now, time.perf_counter()
        elif time.perf_counter() - moved > SILENT_S:
            raise RuntimeError(f"plain Celery stopped after {found} of {jobs} jobs")
