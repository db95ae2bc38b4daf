"""Tracing: what it adds to the CPU time of a job on its way to the record, by the share that is followed."""

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import Process, SimpleQueue
from statistics import median

from app import tracing
from app.config import Settings
from app.planner import Chunk
from app.queue import read_traces
from app.store.jobs import ClaimedJob
from app.store.records import AnswerRow
from workers.engine.base import Answer, Times, Usage
from workers.timing import trace_answers, trace_outcomes

CHUNK, BLOCK = 64, 2_048
# Of a job in `scripts/bench queue`, servers included: text alone, and no model. docs/benchmarks.md has 0.34 s
# per 1,000.
JOB_US = 340.0
USAGE = Usage(400, 3, 300)


class Sink(BaseHTTPRequestHandler):
    """Takes what is posted, and forgets it."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


def _serve(ports: "SimpleQueue[int]") -> None:
    server = HTTPServer(("127.0.0.1", 0), Sink)
    ports.put(server.server_port)
    server.serve_forever()


@contextmanager
def sink() -> Iterator[str]:
    """The URL of a collector in a process of its own, whose CPU seconds are not counted."""
    ports: SimpleQueue[int] = SimpleQueue()
    process = Process(target=_serve, args=(ports,), daemon=True)
    process.start()
    yield f"http://127.0.0.1:{ports.get()}"
    process.terminate()
    process.join()


def ingest(batch: str, first: int) -> dict[int, str]:
    """A block's jobs in ingest, as `app.ingest` does it; the traces of those that are followed."""
    if not tracing.is_on():
        return {}
    with tracing.follow("ingest", None):
        return tracing.begin_jobs(batch, {line: line for line in range(first, first + BLOCK)}, is_first=False)


def dispatch(traces: Sequence[str | None]) -> list[Chunk]:
    """As `app.dispatch` does it."""
    found = {job_id: trace for job_id, trace in enumerate(traces, 1) if trace}
    with tracing.follow("publish chunk", found, kind="producer") as step:
        contexts = step.contexts
    spans = (range(start, start + CHUNK) for start in range(1, len(traces) + 1, CHUNK))
    return [
        Chunk(
            "m", tuple(ids), traces={one: contexts[one] for one in ids if one in contexts} if contexts else {}
        )
        for ids in spans
    ]


def run(chunk: Chunk, claimed: Sequence[ClaimedJob], answers: Sequence[Future[Answer]]) -> None:
    """As `workers.tasks` and `workers.runner` do it."""
    header = {str(job_id): trace for job_id, trace in chunk.traces.items()}
    with tracing.follow("run chunk", read_traces(header), kind="consumer", jobs=CHUNK):
        for name in ("claim", "read"):
            with tracing.step(name):
                pass
        trace_answers(claimed, answers, begun=0.0)
        trace_outcomes([AnswerRow(job.id, 1, "a", "stop", 400, 300, 3) for job in claimed])
        with tracing.step("record"):
            pass


def jobs_of(chunk: Chunk) -> list[ClaimedJob]:
    return [ClaimedJob(one, 1, 1, "t", "b", "m", {}, {}, [1], 0.0) for one in chunk.job_ids]


def answered(count: int) -> list[Future[Answer]]:
    now = time.monotonic()
    answer = Answer("a", "stop", USAGE, times=Times(now, now, now, now))
    futures: list[Future[Answer]] = []
    for _ in range(count):
        future: Future[Answer] = Future()
        future.set_result(answer)
        futures.append(future)
    return futures


def measure(blocks: int) -> float:
    """CPU microseconds per job, with what is sent to the collector."""
    answers = answered(CHUNK)
    blank = [jobs_of(chunk) for chunk in dispatch([None] * BLOCK)]
    began = time.process_time()
    for number in range(blocks):
        first = 1 + number * BLOCK
        traces = ingest("batch_1", first)
        chunks = dispatch([traces.get(line) for line in range(first, first + BLOCK)])
        for chunk, claimed in zip(chunks, blank, strict=True):
            run(chunk, claimed, answers)
    tracing.close()  # sends the rest
    return (time.process_time() - began) / (blocks * BLOCK) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=20, help=f"of {BLOCK:,} jobs")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    measures: dict[str, float] = {}
    with sink() as url:
        for name, share in (("off", None), ("0", 0.0), ("0.001", 0.001), ("0.01", 0.01), ("1", 1.0)):
            found: list[float] = []
            for _ in range(chosen.rounds):
                if share is not None:
                    tracing.set_up(Settings(traces_endpoint=url, traces_share=share), role="bench")
                found.append(measure(chosen.blocks if share != 1.0 else 1))
            measures[name] = median(found)
    idle = measures["off"]
    print("| share | µs of CPU per job | more than off | of a job |\n|---|--:|--:|--:|")
    for name, us in measures.items():
        print(f"| {name} | {us:.2f} | {us - idle:.2f} | {(us - idle) / JOB_US:.2%} |")
    print("tracing: " + " ".join(f"us_at_{name}={us:.2f}" for name, us in measures.items()))


if __name__ == "__main__":
    main()
