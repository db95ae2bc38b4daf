"""One batch from the upload to its output file, through real processes: seconds, CPU and memory."""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg2

from app.local.servers import Broker
from bench.queue_site import Servers, Site, open_site
from bench.queue_usage import Meter, peaks_mib, per_1000

OURS = ("api", "dispatcher", "worker")
INGESTED = ("in_progress", "finalizing", "completed")
POLL_S = 0.1
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Run:
    """`seconds` by part; by role `cpu` in seconds, and peaks of memory in MiB, until the end of ingest and
    until that of all; `curve` has (seconds, jobs ended)."""

    broker: Broker
    jobs: int
    file_bytes: int
    seconds: Mapping[str, float]
    cpu: Mapping[str, float]
    ingest_peaks: Mapping[str, float]
    peaks: Mapping[str, float]
    curve: Sequence[tuple[float, int]]

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def jobs_s(self) -> float:
        return self.jobs / self.total_s

    @property
    def ingest_lines_s(self) -> float:
        return self.jobs / (self.seconds["upload"] + self.seconds["ingest"])

    @property
    def ingest_peak_mib(self) -> float:
        return max(self.ingest_peaks["api"], self.ingest_peaks["dispatcher"])

    @property
    def cpu_per_1000(self) -> float:
        """Of our processes and the servers together."""
        return 1000 * sum(self.cpu.values()) / self.jobs

    def speed(self, start: float, end: float) -> float:
        """Jobs per second between two shares of the batch, such as its first tenth."""
        before = [point for point in self.curve if point[1] <= start * self.jobs]
        first = before[-1] if before else self.curve[0]
        last = next(point for point in self.curve if point[1] >= end * self.jobs)
        return (last[1] - first[1]) / max(last[0] - first[0], POLL_S)

    def told(self) -> str:
        times = "  ".join(f"{part} {seconds:.1f} s" for part, seconds in self.seconds.items())
        peaks = "  ".join(
            f"{role} {self.ingest_peaks[role]:.0f}, {size:.0f}" for role, size in self.peaks.items()
        )
        return (
            f"vqueue on {self.broker}, {self.jobs} jobs of {self.file_bytes / 1e6:.0f} MB: "
            f"{self.jobs_s:.0f} jobs/s  {times}\n"
            f"  {per_1000(self.cpu, self.jobs, own=OURS)}\n  peak MiB of ingest, of all: {peaks}"
        )


def run_batch(servers: Servers, broker: Broker, file: Path, jobs: int, *, work: bool = True) -> Run:
    """Upload the file, wait for the batch's end, count its answers; without `work` only for its ingest."""
    roles = OURS if work else OURS[:2]
    with open_site(servers, broker, roles) as site, connect(site) as http:
        meter = Meter.start({**site.pids, **servers.pids(broker)})
        started = time.perf_counter()
        batch = submit(http, file)
        uploaded_s = time.perf_counter() - started
        curve = list(follow(http, batch["id"], INGESTED))
        ingest_peaks = peaks_mib(site.pids)
        if work:
            curve += follow(http, batch["id"], ["completed"], since=curve[-1][0])
        cpu, peaks = meter.read(), peaks_mib(site.pids)
        if work:
            _check(http, batch["id"], jobs)
        seconds = {"upload": uploaded_s, **_phases(site, batch["id"])}
    return Run(broker, jobs, file.stat().st_size, seconds, cpu, ingest_peaks, peaks, curve)


def connect(site: Site) -> httpx.Client:
    return httpx.Client(
        base_url=site.url, headers={"Authorization": f"Bearer {site.key}"}, timeout=httpx.Timeout(600)
    )


def submit(http: httpx.Client, file: Path, **more: Any) -> Any:
    """Upload a file and make a batch of it, with whatever it is to have besides; the batch."""
    with file.open("rb") as lines:
        form = {"file": ("bench.jsonl", lines, "application/jsonl")}
        uploaded = http.post("/files", data={"purpose": "batch"}, files=form).raise_for_status().json()
    wish = {
        "input_file_id": uploaded["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        **more,
    }
    return http.post("/batches", json=wish).raise_for_status().json()


def follow(
    http: httpx.Client, batch_id: str, until: Collection[str], *, since: float = 0.0
) -> Iterator[tuple[float, int]]:
    """Poll until a batch has one of these states; seconds, and the jobs that have ended, at each poll."""
    started = time.perf_counter() - since
    while (now := time.perf_counter() - started) < LONGEST_S:
        batch = http.get(f"/batches/{batch_id}").raise_for_status().json()
        counts = batch["request_counts"]
        yield now, counts["completed"] + counts["failed"]
        if batch["status"] in until:
            return
        if batch["status"] in ("failed", "expired", "cancelled", "completed"):
            raise RuntimeError(f"the batch ended as {batch['status']}: {batch['errors']}")
        time.sleep(POLL_S)
    raise RuntimeError(f"the batch was not {' or '.join(until)} after {LONGEST_S:.0f} s")


def _check(http: httpx.Client, batch_id: str, jobs: int) -> None:
    """Every job has one line in the output file, and none is twice there."""
    batch = http.get(f"/batches/{batch_id}").raise_for_status().json()
    seen: set[str] = set()
    count = 0
    with http.stream("GET", f"/files/{batch['output_file_id']}/content") as content:
        for line in content.iter_lines():
            seen.add(json.loads(line)["custom_id"])
            count += 1
    if (count, len(seen)) != (jobs, jobs):
        raise RuntimeError(f"the output has {count} lines of {len(seen)} jobs where {jobs} were sent")


def _phases(site: Site, batch_id: str) -> dict[str, float]:
    """How long ingest, work and finalize took by the batch's own times; what did not end is left out."""
    with closing(psycopg2.connect(site.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT extract(epoch FROM in_progress_at - created_at),
                   extract(epoch FROM finalizing_at - in_progress_at),
                   extract(epoch FROM completed_at - finalizing_at) FROM batches WHERE id = %s
            """,
            (batch_id,),
        )
        found = cursor.fetchone() or ()
    named = zip(("ingest", "work", "finalize"), found, strict=True)
    return {name: float(seconds) for name, seconds in named if seconds is not None}
