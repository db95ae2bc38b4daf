"""Real runs that the simulator is held to: a backlog that real processes work off, with the demo model."""

import argparse
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import httpx
import psutil
import psycopg2

from app.local.servers import Broker
from bench.queue_runs import connect, submit
from bench.queue_site import MODULES, Servers, Site, open_servers, open_site
from bench.queue_usage import cpu_s
from demo.catalog import make_catalog, write_catalog
from demo.client import batch_lines
from demo.products import KINDS
from demo.system import MODEL
from demo.web import serve_folder
from simulate.runs import TRIALS, Life, RealRun, Sample, Trial, write_run

ROLES = ("api", "dispatcher", "fetcher")
SETTINGS = {
    "model": str(MODEL),
    "dtype": "float32",
    "torch_threads": "1",
    "answer_cache": "off",
    "fetch_allow_hosts": "127.0.0.1",
    "fetch_per_host": "16",
}
PARTS = 20  # points of a curve
POLL_S = 0.25
SAMPLE_S = 2.0
NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests count as user already
PATIENCE_S = 600.0


class Sampler(Thread):
    """Notes every two seconds who has used how much CPU. All processes of a trial are below this one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = Event()
        self._began = time.monotonic()
        self._ours, self._busy = cpu_s(psutil.Process().pid), _machine_s()
        self.samples = [Sample(0.0, 0.0, 0.0)]

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self._note()

    def finish(self) -> tuple[Sample, ...]:
        self._stopped.set()
        self.join()
        self._note()
        return tuple(self.samples)

    def _note(self) -> None:
        at_s = time.monotonic() - self._began
        ours, busy = cpu_s(psutil.Process().pid) - self._ours, _machine_s() - self._busy
        last = self.samples[-1]
        # A process that ends between the look at it and the look at its parent would be missed for a moment.
        others = max(last.others, busy - ours)
        self.samples.append(Sample(round(at_s, 3), round(max(last.ours, ours), 3), round(others, 3)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="a folder; each run becomes a file there")
    parser.add_argument("--only", nargs="+", choices=[trial.name for trial in TRIALS])
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for run in run_trials(options.only):
        write_run(run, options.output)
        print(told(run), flush=True)


def run_trials(names: Sequence[str] | None = None) -> Iterator[RealRun]:
    """The trials of these names, or all, one after the other, on servers that are started for them."""
    with open_servers([Broker.REDIS]) as servers:
        for trial in TRIALS:
            if names is None or trial.name in names:
                yield run_trial(servers, trial)


def told(run: RealRun) -> str:
    ours = (
        f"{run.cpu_s:.1f} CPU s of ours; other programs left {run.mean_free_cores:.2f} of {run.cores} cores"
    )
    return (
        f"{run.trial.name}: {run.trial.jobs} jobs in {run.makespan_s:.1f} s, mean wait "
        f"{run.mean_wait_s:.1f} s, {ours}"
    )


def run_trial(servers: Servers, trial: Trial) -> RealRun:
    modules = {**MODULES, "worker": "workers.main"}
    with (
        _pictures(trial) as (port, lines),
        open_site(servers, Broker.REDIS, ROLES, modules, fetch_ports=str(port), **SETTINGS) as site,
        connect(site) as http,
    ):
        batch = submit(http, lines)["id"]
        zero = _all_ready(site.database_url, batch, trial)
        return _work(site, http, batch, trial, zero)


@contextmanager
def _pictures(trial: Trial) -> Iterator[tuple[int, Path]]:
    """The port that serves them, and a file of questions about them."""
    entries = make_catalog(trial.pictures, broken=())
    with TemporaryDirectory() as folder, serve_folder(Path(folder) / "catalog") as port:
        url = f"http://127.0.0.1:{port}"
        write_catalog(entries, Path(folder) / "catalog", base_url=url)
        asked = enumerate(batch_lines(entries, url, MODEL.name))
        lines = Path(folder) / "batch.jsonl"
        chosen = [line for number, line in asked if number % len(KINDS) < trial.per_picture]
        lines.write_text("".join(chosen))
        yield port, lines


def _all_ready(database_url: str, batch: str, trial: Trial) -> datetime:
    """Wait until every picture is fetched; the database's time then."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        rows = _ask(
            database_url,
            "SELECT clock_timestamp(), count(*) FROM jobs"
            " WHERE batch_id = %s AND state IN ('ready', 'queued')",
            batch,
        )
        if rows[0][1] == trial.jobs:
            return rows[0][0]
        time.sleep(POLL_S)
    raise RuntimeError(f"the jobs of {trial.name} were not ready after {PATIENCE_S:.0f} s")


def _work(site: Site, http: httpx.Client, batch: str, trial: Trial, zero: datetime) -> RealRun:
    sampler, began = Sampler(), time.monotonic()
    sampler.start()
    lives: list[Life] = []
    for number, start_s in enumerate(trial.starts, start=1):
        time.sleep(max(0.0, began + start_s - time.monotonic()))
        began_s = time.monotonic() - began
        pid = site.start(f"worker.{number}")
        lives.append(Life(began_s, time.monotonic() - began, cpu_s(pid)))
        if trial.stop_s is not None and number == len(trial.starts):
            time.sleep(max(0.0, began + trial.stop_s - time.monotonic()))
            os.kill(pid, signal.SIGTERM)
            lives[-1] = replace(lives[-1], stopped_s=time.monotonic() - began)
    _await_end(http, batch)
    return _read(site.database_url, batch, trial, zero, tuple(lives), sampler.finish())


def _await_end(http: httpx.Client, batch: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if http.get(f"/batches/{batch}").raise_for_status().json()["status"] == "completed":
            return
        time.sleep(POLL_S)
    raise RuntimeError(f"the batch was not completed after {PATIENCE_S:.0f} s")


def _machine_s() -> float:
    """CPU seconds of everything, in the kernel's accounts."""
    times = psutil.cpu_times()._asdict()
    return sum(times.values()) - sum(times.get(name, 0.0) for name in NOT_BUSY)


def _read(
    database_url: str,
    batch: str,
    trial: Trial,
    zero: datetime,
    lives: tuple[Life, ...],
    samples: tuple[Sample, ...],
) -> RealRun:
    rows = _ask(
        database_url,
        "SELECT started_at, finished_at FROM jobs WHERE batch_id = %s AND state = 'completed'",
        batch,
    )
    if len(rows) != trial.jobs:
        raise RuntimeError(f"{len(rows)} of {trial.jobs} jobs were answered")
    started = [(row[0] - zero).total_seconds() for row in rows]
    ended = sorted((row[1] - zero).total_seconds() for row in rows)
    return RealRun(
        trial=trial,
        cores=psutil.cpu_count() or 1,
        makespan_s=ended[-1],
        mean_wait_s=sum(started) / len(rows),
        ended=_curve(ended),
        lives=lives,
        samples=samples,
    )


def _ask(database_url: str, statement: str, batch: str) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, (batch,))
        return cursor.fetchall()


def _curve(times: Sequence[float]) -> tuple[tuple[float, int], ...]:
    places = sorted({max(1, round(len(times) * part / PARTS)) for part in range(1, PARTS + 1)})
    return tuple((round(times[place - 1], 3), place) for place in places)


if __name__ == "__main__":
    main()
