"""The queue around a free engine: ingest, throughput beside plain Celery, cost and polls by size."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from app.local.servers import Broker
from bench.queue_lines import write_lines
from bench.queue_plain_runs import run_plain, together
from bench.queue_polls import POLLS, p99_ratios, time_polls, told
from bench.queue_runs import Run, run_batch
from bench.queue_site import Servers, open_servers

PARTS = ("ingest", "throughput", "scale", "poll")
KEYS = (
    "ingest_lines_s",
    "ingest_peak_mib",
    "jobs_s_rabbitmq",
    "jobs_s_redis",
    "vs_celery",
    "scale_ratio",
    "poll_ratio",
)
BRIEF = 50_000  # jobs of a run of a few seconds
QUICK = {"sizes": [300, 1_000], "jobs": 1_000, "plain_jobs": 200, "rows": [6_000, 12_000], "polls": 5}


@dataclass
class Runs:
    """Batches that were run, each size on each broker once."""

    servers: Servers
    folder: Path
    line_bytes: int
    done: dict[tuple[Broker, int], Run] = field(default_factory=dict)

    def batch(self, broker: Broker, jobs: int, *, work: bool = True) -> Run:
        if (broker, jobs) not in self.done:
            run = run_batch(self.servers, broker, self.file(jobs), jobs, work=work)
            print(run.told())
            self.done[broker, jobs] = run
        return self.done[broker, jobs]

    def steady(self, broker: Broker, jobs: int) -> Run:
        """The middle one of three where a run is so short that how servers woke up would show."""
        first = self.batch(broker, jobs)
        if jobs >= BRIEF:
            return first
        others = [run_batch(self.servers, broker, self.file(jobs), jobs) for _ in range(2)]
        return sorted([first, *others], key=lambda run: run.total_s)[1]

    def file(self, jobs: int) -> Path:
        path = self.folder / f"{jobs}.jsonl"
        if not path.exists():
            for other in self.folder.glob("*.jsonl"):
                other.unlink()
            write_lines(path, jobs, line_bytes=self.line_bytes)
        return path


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    found: dict[str, float] = {}
    with TemporaryDirectory(prefix="vqueue-lines-") as folder, open_servers(options.brokers) as servers:
        runs = Runs(servers, Path(folder), options.line_bytes)
        if "throughput" in options.only:
            found |= throughput(runs, options.brokers, options.jobs, options.plain_jobs)
        if "scale" in options.only:
            found |= scale(runs, options.brokers[0], options.sizes)
        if "ingest" in options.only:
            found |= ingest(runs, options.brokers[0], options.jobs, options.sizes)
        if "poll" in options.only:
            found |= poll(servers, options.rows, options.polls)
    print(last_line(found))


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    add("--brokers", nargs="+", type=Broker, default=list(Broker), choices=list(Broker))
    add("--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000], help="jobs in a batch, rising")
    add("--jobs", type=int, default=100_000, help="jobs beside plain Celery")
    add("--plain-jobs", type=int, default=20_000, help="how many of them plain Celery runs")
    add("--line-bytes", type=int, default=400, help="4000 makes a million lines 4 GB")
    add("--rows", nargs="+", type=int, default=[10_000, 1_000_000], help="jobs in the tables that are polled")
    add("--polls", type=int, default=300, help="of each kind at each size")
    add("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    return options


def throughput(runs: Runs, brokers: Sequence[Broker], jobs: int, plain_jobs: int) -> dict[str, float]:
    """Plain Celery before and after ours, so that a machine that slows down slows both."""
    found: dict[str, float] = {}
    ratios: list[float] = []
    for broker in brokers:
        half = plain_jobs // 2
        first = run_plain(runs.servers, broker, runs.file(jobs), 0, half)
        ours = runs.batch(broker, jobs)
        plain = together([first, run_plain(runs.servers, broker, runs.file(jobs), half, half)])
        print(plain.told(f"on {broker}"))
        found[f"jobs_s_{broker}"] = ours.jobs_s
        ratios.append(ours.jobs_s / plain.jobs_s)
    return found | {"vs_celery": min(ratios)}


def scale(runs: Runs, broker: Broker, sizes: Sequence[int]) -> dict[str, float]:
    """The dearest size's cost per job over the cheapest's, by the clock or by CPU, whichever is worse."""
    found = [runs.steady(broker, size) for size in sizes]
    wall = [run.total_s / run.jobs for run in found]
    cpu = [run.cpu_per_1000 for run in found]
    print(
        f"cost per job, dearest over cheapest size: wall {spread(wall):.2f}, CPU {spread(cpu):.2f}; "
        f"jobs/s in the largest's first tenth {found[-1].speed(0.0, 0.1):.0f}, "
        f"last tenth {found[-1].speed(0.9, 1.0):.0f}"
    )
    return {"scale_ratio": max(spread(wall), spread(cpu))}


def ingest(runs: Runs, broker: Broker, jobs: int, sizes: Sequence[int]) -> dict[str, float]:
    """Of batches that were run before, or of the ingest alone."""
    small, large = (runs.batch(broker, size, work=False) for size in (sizes[0], sizes[-1]))
    print(
        f"peak MiB of API and dispatcher: {small.ingest_peak_mib:.0f} at {small.jobs} lines, "
        f"{large.ingest_peak_mib:.0f} at {large.jobs}: {large.ingest_peak_mib / small.ingest_peak_mib:.2f}"
    )
    lines_s = runs.batch(broker, jobs, work=False).ingest_lines_s
    return {"ingest_lines_s": lines_s, "ingest_peak_mib": large.ingest_peak_mib}


def poll(servers: Servers, sizes: Sequence[int], polls: int) -> dict[str, float]:
    """The worst p99 of what clients poll over that of the smallest tables."""
    times = time_polls(servers, sizes, polls)
    print(told(times))
    found: dict[str, float] = {}
    for rows in sizes[1:]:
        ratios = p99_ratios(times[sizes[0]], times[rows])
        shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"p99 at {rows:,} rows over {sizes[0]:,}: {shown}")
        key = "poll_ratio_10m" if rows >= 10_000_000 else "poll_ratio"
        found[key] = max(ratios[name] for name in POLLS)
    return found


def spread(values: Sequence[float]) -> float:
    return max(values) / min(values)


def last_line(found: Mapping[str, float]) -> str:
    """`na` for what was not measured."""
    return "queue: " + " ".join(f"{key}={_shown(found.get(key))}" for key in (*KEYS, *(found.keys() - KEYS)))


def _shown(value: float | None) -> str:
    if value is None:
        return "na"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


if __name__ == "__main__":
    main()
