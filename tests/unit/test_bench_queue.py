"""The arithmetic of the queue's benchmark, and that its lines are ones that ingest takes."""

from pathlib import Path

import pytest

from app.chat import chat_rules
from app.config import Settings
from app.lines import LineRules, ParsedLine, parse_line
from app.local.servers import Broker
from bench.queue import last_line, read_options, spread
from bench.queue_lines import MODEL, URL, lines, write_lines
from bench.queue_plain_runs import PlainRun, together
from bench.queue_polls import p99, p99_ratios
from bench.queue_runs import Run
from bench.queue_usage import per_1000


def a_run(*curve: tuple[float, int], jobs: int = 100) -> Run:
    seconds = {"upload": 1.0, "ingest": 1.0, "work": 7.0, "finalize": 1.0}
    cpu = {"api": 1.0, "worker": 2.0, "postgres": 3.0}
    early, late = {"api": 120.0, "dispatcher": 90.0}, {"api": 120.0, "dispatcher": 200.0}
    return Run(Broker.REDIS, jobs, 10_000, seconds, cpu, early, late, curve)


@pytest.mark.parametrize("size", [400, 4_000])
def test_lines_have_the_size_asked_for_and_pass(size: int) -> None:
    rules = LineRules(URL, chat_rules(Settings(model=MODEL)))
    found = list(lines(range(20), line_bytes=size))
    assert all(size - 20 <= len(line) <= size + 60 for line in found)
    assert all(isinstance(parse_line(line, 1, rules), ParsedLine) for line in found)
    assert len(set(found)) == 20


def test_a_file_has_as_many_lines_as_asked_for(tmp_path: Path) -> None:
    size = write_lines(tmp_path / "in.jsonl", 4_321, line_bytes=400)
    data = (tmp_path / "in.jsonl").read_bytes()
    assert (data.count(b"\n"), len(data)) == (4_321, size)


def test_a_run_counts_from_the_upload_to_the_output_file() -> None:
    run = a_run()
    assert (run.jobs_s, run.ingest_lines_s, run.ingest_peak_mib, run.cpu_per_1000) == (10, 50, 120, 60)


def test_the_speed_of_a_part_leaves_out_the_wait_before_it() -> None:
    run = a_run((0.0, 0), (5.0, 0), (6.0, 10), (14.0, 90), (16.0, 100))
    assert (run.speed(0.0, 0.1), run.speed(0.9, 1.0)) == (10, 5)


def test_halves_of_a_run_are_added_up() -> None:
    halves = [PlainRun(10, 1.0, {"worker": 1.0}), PlainRun(30, 3.0, {"worker": 2.0})]
    assert together(halves) == PlainRun(40, 4.0, {"worker": 3.0})


def test_cpu_is_told_per_1000_jobs_with_and_without_servers() -> None:
    told = per_1000({"worker": 1.0, "postgres": 2.0}, 2_000, own=["worker"])
    assert told == "CPU s per 1,000 jobs: 0.500, with servers 1.500: worker 0.500  postgres 1.000"


def test_polls_are_compared_by_the_value_that_one_in_a_hundred_exceeds() -> None:
    small, large = {"batch": [1.0] * 99 + [9.0], "list": [2.0]}, {"batch": [1.5] * 100, "list": [2.0]}
    assert p99(small["batch"]) == 1.0
    assert p99_ratios(small, large) == {"batch": 1.5, "list": 1.0}


def test_the_last_line_says_na_for_what_was_not_measured() -> None:
    assert last_line({"jobs_s_redis": 1234.5, "vs_celery": 5.126, "poll_ratio_10m": 1.0}) == (
        "queue: ingest_lines_s=na ingest_peak_mib=na jobs_s_rabbitmq=na jobs_s_redis=1234 vs_celery=5.13 "
        "scale_ratio=na poll_ratio=na poll_ratio_10m=1.00"
    )


def test_the_spread_is_the_dearest_over_the_cheapest() -> None:
    assert spread([2.0, 1.0, 1.5]) == 2.0


def test_quick_is_small() -> None:
    assert max(read_options(["--quick"]).sizes) <= 1_000
