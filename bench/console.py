"""The console's pages of results: how long the server takes, and how many bytes it sends, by kind of page."""

import argparse
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from app.ids import job_name
from app.local.servers import Broker
from bench.console_rows import ABSENT_WORD, RARE_WORD, fill
from bench.queue_site import Site, open_servers, open_site

JOBS, ASKED = 200_000, 40
QUICK_JOBS, QUICK_ASKED = 2_000, 4
FURTHER = re.compile(r'after=(job_[0-9a-f]{16})" rel="next"')
GRID, FILTER, TEXT, COMPARE = "grid", "filter", "text", "compare"


@dataclass(frozen=True)
class Kind:
    """Pages that are asked for alike; `query` makes one of them after another."""

    name: str
    group: str
    query: Callable[[], str]


@dataclass(frozen=True)
class Timed:
    kind: Kind
    ms: Sequence[float]
    largest_bytes: int

    def told(self) -> str:
        return (
            f"{self.kind.name:34} p50 {quantile(self.ms, 0.5):6.0f} ms   "
            f"p95 {quantile(self.ms, 0.95):6.0f} ms   {self.largest_bytes / 1000:6.1f} kB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help="in each of two batches")
    parser.add_argument("--asked", type=int, default=ASKED, help="requests of each kind")
    parser.add_argument("--quick", action="store_true", help="few jobs, to see that it runs")
    given = parser.parse_args()
    jobs, asked = (QUICK_JOBS, QUICK_ASKED) if given.quick else (given.jobs, given.asked)
    with open_servers([Broker.REDIS]) as servers, open_site(servers, Broker.REDIS, ["api"]) as site:
        began = time.perf_counter()
        batches = fill(site.database_url, site.tenant_id, jobs)
        print(f"two batches of {jobs:,} jobs, filled in {time.perf_counter() - began:.0f} s")
        with signed_in(site) as http:
            first = timed(http, Kind("grid, the very first time", GRID, lambda: _results(batches[0])), 1)
            print(first.told())
            done = [timed(http, kind, asked) for kind in kinds(batches, jobs, random.Random(1))]
            for one in done:
                print(one.told())
            print(f"an absent word, to the last job    {walked(http, batches[0]):.1f} s")
    print(last_line([first, *done]))


def kinds(batches: Sequence[str], jobs: int, dice: random.Random) -> list[Kind]:
    """Those of the grid begin anywhere in the batch, as somebody who pages through it does."""

    def anywhere() -> str:
        return job_name(dice.randrange(1, jobs))

    def after(query: str = "") -> Callable[[], str]:
        return lambda: _results(batches[0], f"after={anywhere()}&{query}")

    def plain(query: str) -> Callable[[], str]:
        return lambda: _results(batches[0], query)

    pair = f"/compare?a={batches[0]}&b={batches[1]}"
    return [
        Kind("grid, first page", GRID, plain("")),
        Kind("grid, anywhere", GRID, after()),
        Kind("grid, the page before", GRID, lambda: _results(batches[0], f"before={anywhere()}")),
        Kind("label, one in eight, anywhere", FILTER, after("label=colour%3Dred")),
        Kind("label, one in 5,000", FILTER, plain(f"label=colour%3D{RARE_WORD}")),
        Kind("label and no review", FILTER, after("label=kind%3Dlamp&review=none")),
        Kind("failed", FILTER, after("outcome=failed")),
        Kind("one error", FILTER, after("outcome=code:image_too_large")),
        Kind("overturned", FILTER, plain("review=overturned")),
        Kind("confidence below 1 %", FILTER, after("below=0.01")),
        Kind("field", FILTER, after("field=%3Dkind")),
        Kind("word in each", TEXT, after("text=plain+ground")),
        Kind("word, one in 5,000", TEXT, after(f"text={RARE_WORD}")),
        Kind("word that is nowhere", TEXT, after(f"text={ABSENT_WORD}")),
        Kind("compare, first page", COMPARE, lambda: pair),
        Kind("compare, alike", COMPARE, lambda: f"{pair}&show=same&after={dice.randrange(jobs)}"),
    ]


def timed(http: httpx.Client, kind: Kind, times: int) -> Timed:
    ms: list[float] = []
    largest = 0
    for _ in range(times):
        path = kind.query()
        began = time.perf_counter()
        answer = http.get(path)
        ms.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, (path, answer.text)
        largest = max(largest, len(answer.content))
    return Timed(kind, ms, largest)


def walked(http: httpx.Client, batch: str) -> float:
    """Seconds until a search, going on by itself, has looked at all jobs and found nothing."""
    began = time.perf_counter()
    path: str | None = _results(batch, f"text={ABSENT_WORD}")
    while path is not None:
        further = FURTHER.search(http.get(path).text)
        path = _results(batch, f"text={ABSENT_WORD}&after={further[1]}") if further else None
    return time.perf_counter() - began


def last_line(done: Sequence[Timed]) -> str:
    by_group: Mapping[str, list[float]] = {
        group: [ms for one in done if one.kind.group == group for ms in one.ms]
        for group in (GRID, FILTER, TEXT, COMPARE)
    }
    p95 = " ".join(f"{group}_p95_ms={quantile(ms, 0.95):.0f}" for group, ms in by_group.items())
    return f"console: {p95} page_kb={max(one.largest_bytes for one in done) / 1000:.0f}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share is not above; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


@contextmanager
def signed_in(site: Site) -> Iterator[httpx.Client]:
    base = site.url.removesuffix("/v1")
    with httpx.Client(base_url=base, headers={"Accept": "text/html"}, timeout=60) as http:
        answer = http.post("/sign-in", data={"key": site.key})
        assert answer.status_code == 303, answer.text
        yield http


def _results(batch: str, query: str = "") -> str:
    return f"/batches/{batch}/results?{query}".rstrip("?&")


if __name__ == "__main__":
    main()
