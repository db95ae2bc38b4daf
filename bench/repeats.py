"""A batch in which every question stands ten times, and the same batch again: how often the model runs.

The real API, dispatcher and worker; the engine's answers differ from run to run, so that equal answers were
one run. Prints `repeats: ...`: `first` and `second` are model runs for each job of the two batches.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from app.local.servers import Broker
from bench.queue_lines import MODEL, QUESTIONS, URL
from bench.queue_runs import connect, follow, submit
from bench.queue_site import MODULES, Servers, Site, open_servers, open_site

TIMES = 10
WORKER = {**MODULES, "worker": "bench.repeats_worker"}


@dataclass(frozen=True)
class Day:
    """One batch: how many of its jobs the model ran for, its answers by question, and its seconds."""

    jobs: int
    runs: int
    answers: Mapping[str, frozenset[str]]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    options = parser.parse_args()
    with open_servers([Broker.REDIS]) as servers:
        first, second = measure(servers, options.jobs)
    for day in (first, second):
        print(f"{day.jobs} jobs, {day.runs} model runs, {day.seconds:.1f} s")
    print(f"repeats: {told(first, second)}")


def measure(servers: Servers, jobs: int) -> tuple[Day, Day]:
    """The two batches, one after the other on one installation."""
    roles = ("api", "dispatcher", "worker")
    with TemporaryDirectory() as folder, open_site(servers, Broker.REDIS, roles, WORKER) as site:
        file = Path(folder) / "repeats.jsonl"
        file.write_text("".join(_lines(jobs)))
        return _day(site, file, jobs), _day(site, file, jobs)


def told(first: Day, second: Day) -> str:
    one_each = all(len(texts) == 1 for texts in first.answers.values())
    return (
        f"first={first.runs / first.jobs:.3f} second={second.runs / second.jobs:.3f} "
        f"identical={'yes' if one_each and first.answers == second.answers else 'no'}"
    )


def _lines(jobs: int) -> Iterator[str]:
    """Every question TIMES times, all shuffled: an image's questions do not stand side by side in a file."""
    numbers = [number % (jobs // TIMES) for number in range(jobs)]
    Random(7).shuffle(numbers)
    for place, number in enumerate(numbers):
        question = f"Product {number}: {QUESTIONS[number % len(QUESTIONS)]}"
        body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 32}
        yield (
            json.dumps({"custom_id": f"{number}/{place}", "method": "POST", "url": URL, "body": body}) + "\n"
        )


def _day(site: Site, file: Path, jobs: int) -> Day:
    with connect(site) as http:
        started = time.perf_counter()
        batch_id = submit(http, file)["id"]
        list(follow(http, batch_id, ["completed"]))
        seconds = time.perf_counter() - started
        batch = http.get(f"/batches/{batch_id}").raise_for_status().json()
        answers: dict[str, set[str]] = {}
        with http.stream("GET", f"/files/{batch['output_file_id']}/content") as content:
            for line in content.iter_lines():
                row = json.loads(line)
                text = row["response"]["body"]["choices"][0]["message"]["content"]
                answers.setdefault(row["custom_id"].partition("/")[0], set()).add(text)
    runs = jobs - batch["vqueue"]["cache"]["answered"]
    return Day(jobs, runs, {name: frozenset(texts) for name, texts in answers.items()}, seconds)


if __name__ == "__main__":
    main()
