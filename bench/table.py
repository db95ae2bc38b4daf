"""A table by `vqueue run`: seconds until all its jobs are queued, and what memory that takes."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.local.servers import Broker
from bench.queue_runs import INGESTED, POLL_S, connect
from bench.queue_site import Site, open_servers, open_site
from bench.queue_usage import peaks_mib

QUICK = 500
LONGEST_S = 1800.0
COLOURS = ("red", "green", "blue", "black", "white")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rows, to see that it runs")
    options = parser.parse_args(arguments)
    rows = QUICK if options.quick else options.rows
    with (
        TemporaryDirectory(prefix="vqueue-table-") as folder,
        open_servers([Broker.REDIS]) as servers,
        open_site(servers, Broker.REDIS, ("api", "dispatcher")) as site,
    ):
        catalog = Path(folder) / "catalog.csv"
        write_catalog(catalog, rows)
        queued_s, run_mib, dispatcher_mib = measure(site, catalog, rows, options.questions)
    print(
        f"table: rows={rows} questions={options.questions} queued_s={queued_s:.1f} "
        f"run_peak_mib={run_mib:.0f} dispatcher_peak_mib={dispatcher_mib:.0f}"
    )


def write_catalog(path: Path, rows: int) -> None:
    """Products with a picture each, as a shop exports them; nothing is fetched here."""
    with path.open("w") as file:
        file.write("sku,title,colour,price,image_url\n")
        for row in range(rows):
            colour = COLOURS[row % len(COLOURS)]
            file.write(
                f'sku-{row:07},"Mug, {colour}, no. {row}",{colour},{row % 90}.90,https://shop.example/{row}.jpg\n'
            )


def measure(site: Site, catalog: Path, rows: int, questions: int) -> tuple[float, float, float]:
    """Seconds until all jobs are in Postgres, and the peaks in MiB of the command and of the dispatcher."""
    asks = [f"--ask=q{number}=What is part {number} of {{title}}?" for number in range(questions)]
    command = [sys.executable, "-m", "app.cli.main", "run", str(catalog), *asks, "--id-column", "sku"]
    environment = {**os.environ, "VQUEUE_URL": site.url, "VQUEUE_API_KEY": site.key}
    started = time.perf_counter()
    with subprocess.Popen([*command, "-o", str(catalog.with_name("out.csv"))], env=environment) as process:
        try:
            total = _wait(site, process)
            queued_s = time.perf_counter() - started
            peaks = peaks_mib({"run": process.pid, "dispatcher": site.pids["dispatcher"]})
        finally:
            process.terminate()
    if total != rows * questions:
        raise RuntimeError(f"{total} jobs were made of {rows} rows with {questions} questions")
    return queued_s, peaks["run"], peaks["dispatcher"]


def _wait(site: Site, process: "subprocess.Popen[bytes]") -> int:
    """The jobs of the batch once all of them are there."""
    until = time.monotonic() + LONGEST_S
    with connect(site) as http:
        while time.monotonic() < until and process.poll() is None:
            found: list[Any] = http.get("/batches").raise_for_status().json()["data"]
            if found and found[0]["status"] in INGESTED:
                return found[0]["request_counts"]["total"]
            time.sleep(POLL_S)
    raise RuntimeError("the batch was never queued")


if __name__ == "__main__":
    main()
