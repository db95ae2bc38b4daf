"""The queue's benchmark runs through all of its parts, at sizes that say nothing."""

import re

import pytest

from bench.queue import main


def test_the_quick_benchmark_measures_everything(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--brokers", "redis"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(
        r"queue: ingest_lines_s=[\d.]+ ingest_peak_mib=[\d.]+ jobs_s_rabbitmq=na jobs_s_redis=[\d.]+ "
        r"vs_celery=[\d.]+ scale_ratio=[\d.]+ poll_ratio=[\d.]+",
        last,
    )
