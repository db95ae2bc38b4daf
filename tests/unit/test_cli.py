"""The `vqueue` command and the last line of scripts/test."""

from pathlib import Path

from typer.testing import CliRunner

from app.cli.main import app
from tests.tally import tally

REPORT = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>'


def test_every_command_is_offered_and_explains_itself() -> None:
    for command in ("up", "migrate", "api", "dispatcher", "fetcher", "worker", "keys"):
        shown = CliRunner().invoke(app, [command, "--help"])
        assert shown.exit_code == 0
        assert len(shown.stdout) > 200


def test_a_count_that_makes_no_sense_is_refused() -> None:
    assert CliRunner().invoke(app, ["up", "--workers", "-1"]).exit_code == 2
    assert CliRunner().invoke(app, ["up", "--broker", "kafka"]).exit_code == 2


def test_the_tally_adds_up_all_reports(tmp_path: Path) -> None:
    for name in ("unit.xml", "servers.xml"):
        (tmp_path / name).write_text(REPORT)
    found = tally([tmp_path / "unit.xml", tmp_path / "servers.xml"])
    assert (found["passed"], found["failed"], found["errors"], found["skipped"]) == (10, 2, 2, 4)
