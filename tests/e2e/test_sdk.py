"""The unchanged official SDK, sync and async: every call of files, batches, models and webhooks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster

TOUR = Path(__file__).resolve().parents[2] / "docs" / "examples" / "sdk_tour.py"


@pytest.mark.parametrize("broker_url", ["redis"], indirect=True)  # the SDK sees nothing of a broker
def test_the_sdk_tour_passes_by_both_clients(cluster: Cluster) -> None:
    environment = {**os.environ, "VQUEUE_URL": f"{cluster.url}/v1", "VQUEUE_API_KEY": cluster.key}
    run = subprocess.run(
        [sys.executable, TOUR], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr + cluster.logs()
    said = run.stdout.splitlines()
    half = len(said) // 2
    assert (said[0], said[half]) == ("OpenAI", "AsyncOpenAI")
    assert said[1:half] == said[half + 1 :]
