"""Dashboards and alarms read what a real run with the demo model tells, watched by a real Prometheus."""

from pathlib import Path

from app.config import Settings
from app.db import Sessions
from deploy.monitoring import check_run, watched_run
from tests.prometheus import need_prometheus


def test_every_panel_and_rule_finds_series_after_a_run(
    settings: Settings, db: Sessions, tmp_path: Path
) -> None:
    need_prometheus()
    with watched_run(settings, db, tmp_path) as monitored:
        faults = check_run(monitored)
    assert faults == []
