"""A large batch about pictures that runs beside what is measured, and its speed meanwhile."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx

from bench.queue_runs import submit
from demo.catalog import Entry
from demo.client import batch_lines

POLL_S = 0.2
LONGEST_S = 300.0


def write_lines(path: Path, model: str, entries: Sequence[Entry], pictures_url: str, count: int) -> Path:
    """A file of so many lines: all questions about all pictures, over and over, each time asked anew."""
    with path.open("w") as file:
        file.writelines(islice(_lines(model, entries, pictures_url), count))
    return path


def _lines(model: str, entries: Sequence[Entry], pictures_url: str) -> Iterator[str]:
    turn = 0
    while True:
        turn += 1
        for text in batch_lines(entries, pictures_url, model):
            line = json.loads(text)
            line["custom_id"] += f"/{turn}"
            line["body"]["messages"][0]["content"][1]["text"] += f" (Look no. {turn}.)"
            yield json.dumps(line) + "\n"


@dataclass
class Pace:
    """Jobs per second, known once it has been measured."""

    jobs_s: float = 0.0


@dataclass(frozen=True)
class RunningBatch:
    http: httpx.Client
    id: str

    @classmethod
    def submit(cls, http: httpx.Client, lines: Path) -> "RunningBatch":
        return cls(http, submit(http, lines)["id"])

    def wait_for(self, jobs: int) -> None:
        until = time.monotonic() + LONGEST_S
        while self.ended() < jobs:
            if time.monotonic() > until:
                raise RuntimeError(f"the batch did not come to {jobs} jobs within {LONGEST_S:.0f} s")
            time.sleep(POLL_S)

    @contextmanager
    def measuring(self) -> Iterator[Pace]:
        """Its speed while the block runs; RuntimeError if it came to its end."""
        pace, ended, started = Pace(), self.ended(), time.perf_counter()
        yield pace
        counts = self._counts()
        if counts["completed"] + counts["failed"] >= counts["total"]:
            raise RuntimeError("the batch ended before it was measured: give it more jobs")
        pace.jobs_s = (self.ended() - ended) / (time.perf_counter() - started)

    def jobs_s(self, seconds: float) -> float:
        with self.measuring() as pace:
            time.sleep(seconds)
        return pace.jobs_s

    def ended(self) -> int:
        counts = self._counts()
        return counts["completed"] + counts["failed"]

    def told(self) -> str:
        counts = self._counts()
        return f"{counts['completed']} of {counts['total']} jobs answered, {counts['failed']} failed"

    def _counts(self) -> dict[str, int]:
        return self.http.get(f"/batches/{self.id}").raise_for_status().json()["request_counts"]
