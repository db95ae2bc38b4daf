"""The short run of the chaos suite: every kind of strike once, and every job has one result."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.local import rabbitmq
from tests.chaos.plan import RunPlan
from tests.chaos.run import perform


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: PostgreSQL's user could not pass through that."""
    path = Path(tempfile.mkdtemp(prefix="vqueue-chaos-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def test_every_job_has_one_result_whatever_is_struck(folder: Path) -> None:
    broker = "rabbitmq" if rabbitmq.installed() else "redis"
    plan = RunPlan(broker=broker, engine="fake", jobs=600, strikes=1, seed=7, pause_s=1.0)
    said: list[str] = []
    report = perform(plan, folder / "run", said.append)
    assert (report.lost, report.duplicated, report.problems) == (0, 0, []), "\n".join(said)
    assert report.jobs >= plan.jobs
