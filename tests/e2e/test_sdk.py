"""The unchanged official SDK, sync and async: every call of files, batches, models and webhooks."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster
from tests.receiver import receiving

TOUR = Path(__file__).resolve().parents[2] / "docs" / "examples" / "sdk_tour.py"


@pytest.mark.parametrize("broker_url", ["redis"], indirect=True)  # the SDK sees nothing of a broker
def test_the_sdk_tour_passes_by_both_clients(make_cluster: Callable[..., Cluster]) -> None:
    with receiving() as receiver:
        cluster = make_cluster(fetch_allow_hosts=(receiver.url.removeprefix("http://"),))
        cluster.start("api", "dispatcher", "fetcher", "worker")
        environment = {**os.environ, "VQUEUE_URL": f"{cluster.url}/v1", "VQUEUE_API_KEY": cluster.key}
        command = [sys.executable, TOUR, "--webhook-url", receiver.url]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr + cluster.logs()
    said = run.stdout.splitlines()
    half = len(said) // 2
    assert (said[0], said[half]) == ("OpenAI", "AsyncOpenAI")
    assert said[1:half] == said[half + 1 :]
    assert len(receiver.received) == 2
