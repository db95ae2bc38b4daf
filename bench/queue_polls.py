"""What clients and our processes ask again and again, timed on tables of several sizes in turn."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median

import httpx

from app import telemetry
from app.config import Settings
from app.db import Sessions, make_engine, make_sessions, transaction
from app.dispatch import Dispatcher
from app.local.servers import Broker
from app.planner import Chunk
from app.states import Priority
from app.store import jobs, records, workers
from app.store.records import AnswerRow
from bench.queue_engine import ANSWER
from bench.queue_lines import MODEL
from bench.queue_rows import fill
from bench.queue_runs import connect
from bench.queue_site import Servers, Site, open_site

POLLS = ("batch", "first 1,000 results", "last 1,000 results", "list of batches")
MOVES = ("dispatch 64", "claim 32", "record 32")
WINDOW = 64  # jobs that one dispatch sends: two chunks
PAGE = 1_000
WARM_UP = 20
WORKER = "bench"

Times = Mapping[str, Sequence[float]]  # seconds by what was asked


class Kept:
    """A broker that keeps the chunks, so that they can be claimed here."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def send(self, chunks: Sequence[Chunk]) -> None:
        self.chunks.extend(chunks)

    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int:  # noqa: ARG002
        return len(self.chunks)

    def dead(self) -> int:
        return 0


@dataclass(frozen=True)
class Table:
    """Tables with so many jobs, and the ways to ask for them."""

    rows: int
    batch: str
    done: int
    http: httpx.Client
    sessions: Sessions
    dispatcher: Dispatcher
    kept: Kept = field(repr=False)

    def asks(self) -> dict[str, Callable[[], object]]:
        results = f"/batches/{self.batch}/results?limit={PAGE}&after="
        return {
            "batch": lambda: self._get(f"/batches/{self.batch}"),
            "first 1,000 results": lambda: self._get(f"{results}0"),
            "last 1,000 results": lambda: self._get(f"{results}{self.done - PAGE}"),
            "list of batches": lambda: self._get("/batches"),
        }

    def move(self) -> Iterator[tuple[str, float]]:
        """Take two chunks of jobs from ready to completed; seconds of each statement."""
        yield _timed("dispatch 64", self.dispatcher.send)
        while self.kept.chunks:
            ids = self.kept.chunks.pop().job_ids
            claimed: list[jobs.ClaimedJob] = []
            yield _timed("claim 32", lambda ids=ids, claimed=claimed: claimed.extend(self._claim(ids)))
            yield _timed("record 32", lambda claimed=claimed: self._record(claimed))

    def _get(self, path: str) -> None:
        self.http.get(path).raise_for_status()

    def _claim(self, ids: Sequence[int]) -> list[jobs.ClaimedJob]:
        with transaction(self.sessions) as session:
            return jobs.claim(session, ids, worker=WORKER, lease_s=600)

    def _record(self, claimed: Sequence[jobs.ClaimedJob]) -> None:
        rows = [
            AnswerRow(job.id, job.attempt, ANSWER.text, ANSWER.finish_reason, 320, 0, 3) for job in claimed
        ]
        with transaction(self.sessions) as session:
            records.record_answers(session, rows, model=MODEL, revision="instant")


def time_polls(servers: Servers, sizes: Sequence[int], polls: int) -> dict[int, Times]:
    """Ask each size's tables in turn, so that whatever disturbs the machine meets all of them alike."""
    telemetry.configure_logs(log_format="json", level="WARNING", role="bench")
    with ExitStack() as stack:
        tables = [stack.enter_context(_table(servers, rows)) for rows in sizes]
        times: dict[int, dict[str, list[float]]] = {
            table.rows: {name: [] for name in (*POLLS, *MOVES)} for table in tables
        }
        for number in range(polls + WARM_UP):
            for table in tables:
                asked = [_timed(name, ask) for name, ask in table.asks().items()]
                moved = list(table.move()) if number < polls // 3 + WARM_UP else []
                for name, seconds in [*asked, *moved] if number >= WARM_UP else ():
                    times[table.rows][name].append(seconds)
    return dict(times.items())


def p99_ratios(small: Times, large: Times) -> dict[str, float]:
    return {name: p99(large[name]) / p99(small[name]) for name in small if small[name] and large[name]}


def p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def told(times: Mapping[int, Times]) -> str:
    """A line for each question: median and p99 in ms at each size."""
    lines = [f"{'ms, median / p99 at rows':<24}" + "".join(f"{rows:>20,}" for rows in times)]
    for name in (*POLLS, *MOVES):
        pairs = [(1000 * median(found[name]), 1000 * p99(found[name])) for found in times.values()]
        lines.append(f"{name:<24}" + "".join(f"{middle:>12.2f} / {late:5.2f}" for middle, late in pairs))
    return "\n".join(lines)


def _timed(name: str, work: Callable[[], object]) -> tuple[str, float]:
    started = time.perf_counter()
    work()
    return name, time.perf_counter() - started


@contextmanager
def _table(servers: Servers, rows: int) -> Iterator[Table]:
    with open_site(servers, Broker.REDIS, ["api"]) as site, connect(site) as http:
        started = time.perf_counter()
        batch, done = fill(site, rows)
        print(f"{rows:,} rows filled in {time.perf_counter() - started:.0f} s")
        engine = make_engine(site.database_url, pool_size=2, application="bench")
        sessions = make_sessions(engine)
        with transaction(sessions) as session:
            workers.register(session, worker=WORKER, role="worker", model=MODEL, revision="instant")
        kept = Kept()
        dispatcher = Dispatcher(sessions=sessions, sender=kept, settings=_settings(site))
        yield Table(rows, batch, done, http, sessions, dispatcher, kept)
        engine.dispose()


def _settings(site: Site) -> Settings:
    return Settings(database_url=site.database_url, model=MODEL, window_jobs=WINDOW)  # pyright: ignore[reportArgumentType] - a text becomes a secret
