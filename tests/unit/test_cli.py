"""The `vqueue` command and the last line of scripts/test."""

import os
import socket
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import local
from app.cli.keys import aligned
from app.cli.local import Plan
from app.cli.main import app
from app.errors import FatalWork
from app.local.folder import DataFolder
from app.local.process import last_error
from app.local.servers import names_object_store
from tests.tally import tally

ROOT = Path(__file__).resolve().parents[2]
STATE = '{"ports": {"postgres": 1}, "secrets": {"postgres": "word"}}'
REPORT = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>'


def test_every_command_is_offered_and_explains_itself() -> None:
    commands = ("up", "run", "submit", "check", "watch", "cancel", "export", "doctor", "migrate", "compare")
    commands += ("results", "failures", "retry", "keys")
    for command in (*commands, "api", "dispatcher", "fetcher", "worker"):
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


def test_what_failed_and_passed_alone_is_told_as_flaky(tmp_path: Path) -> None:
    (tmp_path / "servers.xml").write_text(REPORT)
    (tmp_path / "again.xml").write_text('<testsuites><testsuite tests="2" failures="1"/></testsuites>')
    found = tally([tmp_path / "again.xml", tmp_path / "servers.xml"])
    assert (found["passed"], found["failed"], found["errors"], found["flaky"]) == (6, 1, 0, 1)


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"vqueue {version('vqueue')}\n"


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_a_port_that_is_none_is_refused_wherever_it_comes_from(port: str) -> None:
    assert CliRunner().invoke(app, ["up"], env={"VQUEUE_PORT": port}).exit_code == 2
    assert CliRunner().invoke(app, ["up", "--port", port]).exit_code == 2


@pytest.mark.parametrize(
    "command", [("up",), ("migrate",), ("api",), ("dispatcher",), ("fetcher",), ("worker",), ("keys", "list")]
)
def test_every_command_names_all_wrong_settings_before_it_starts(command: tuple[str, ...]) -> None:
    wrong = {"VQUEUE_LEASE_S": "abc", "VQUEUE_STEP_ROWS": "0"}
    done = CliRunner().invoke(app, command, env=wrong)
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "VQUEUE_STEP_ROWS is '0': input should be greater than or equal to 1",
        "VQUEUE_LEASE_S is 'abc': input should be a valid number, unable to parse string as a number",
    ]


def test_settings_that_go_ill_together_are_told_in_one_line() -> None:
    done = CliRunner().invoke(app, ["api"], env={"VQUEUE_LEASE_S": "20"})
    assert done.exit_code == 2
    said = "VQUEUE_HEARTBEAT_S is 10: it must be at most a third of VQUEUE_LEASE_S, which is 20"
    assert done.stderr.splitlines() == [said]


def test_images_that_would_go_before_their_last_use_is_noted_are_told() -> None:
    done = CliRunner().invoke(app, ["api"], env={"VQUEUE_RETENTION_IMAGES_S": "60"})
    said = "VQUEUE_RETENTION_IMAGES_S is 60: it must be at least 3600, or 0 to keep images for ever"
    assert done.stderr.splitlines() == [said]


@pytest.mark.parametrize("url", ["nonsense", "mysql://me:word@host/db", "postgresql://me:word@host:x/db"])
def test_a_database_url_that_is_none_is_told_in_one_line_without_its_password(url: str) -> None:
    done = CliRunner().invoke(app, ["migrate"], env={"VQUEUE_DATABASE_URL": url})
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("VQUEUE_DATABASE_URL is no PostgreSQL URL")
    assert "me:word" not in line


def test_a_log_level_that_is_none_is_told() -> None:
    done = CliRunner().invoke(app, ["api"], env={"VQUEUE_LOG_LEVEL": "loud"})
    assert done.stderr.startswith("VQUEUE_LOG_LEVEL is 'loud': input should be one of CRITICAL")


def test_variables_that_are_no_settings_are_named_and_those_of_scripts_are_not(tmp_path: Path) -> None:
    given = {"VQUEUE_LEASES_S": "3", "VQUEUE_ODD": "1", "VQUEUE_REPORTS": "x", "VQUEUE_PYTHON": "python3"}
    done = CliRunner().invoke(app, ["keys", "list", "--data", str(tmp_path)], env=given)
    said = "VQUEUE_LEASES_S (did you mean VQUEUE_LEASE_S?), VQUEUE_ODD"
    assert done.stderr.splitlines()[0] == f"ignored, for vqueue has no such setting: {said}"


def test_what_kubernetes_tells_of_services_is_no_reason_to_warn(tmp_path: Path) -> None:
    given = {
        "VQUEUE_API_SERVICE_HOST": "10.0.0.1",
        "VQUEUE_API_SERVICE_PORT_HTTP": "80",
        "VQUEUE_API_PORT": "tcp://10.0.0.1:80",
        "VQUEUE_API_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    done = CliRunner().invoke(app, ["migrate", "--data", str(tmp_path)], env=given)
    assert done.stderr.startswith("There is no database in")


def test_a_folder_without_a_database_is_told_and_left_alone(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["migrate", "--data", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"There is no database in {tmp_path / 'none'}: `vqueue up")
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    done = CliRunner().invoke(app, ["migrate", "--data", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path}/state.json cannot be used (JSONDecodeError)\n"


def test_a_taken_port_leaves_no_folder_behind(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["up", "--data", str(tmp_path / "data"), "--port", port])
    assert done.exit_code == 1
    assert done.stdout == f"port {port} is taken; choose another with --port\n"
    assert list(tmp_path.iterdir()) == []


def test_an_object_store_that_refuses_us_ends_up_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_plan: Plan, _folder: DataFolder) -> None:
        raise FatalWork("object_store_refused", "The object store needs credentials.")

    monkeypatch.setattr(local, "run", refuse)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = str(free.getsockname()[1])
    done = CliRunner().invoke(app, ["up", "--data", str(tmp_path / "data"), "--port", port])
    assert (done.exit_code, done.stdout) == (1, "object_store_refused: The object store needs credentials.\n")


@pytest.mark.parametrize(
    ("name", "brings"),
    [("ENDPOINT_URL", True), ("ACCESS_KEY_ID", True), ("SOURCE_BUCKETS", False), ("REGION", False)],
)
def test_an_object_store_is_brought_by_its_address_or_its_keys(name: str, brings: bool) -> None:
    assert names_object_store({f"VQUEUE_S3_{name}": "x"}) is brings


def test_a_folder_to_compare_by_needs_a_question(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["compare", "--sample", str(tmp_path), "--a", "x", "--b", "y"])
    assert done.exit_code == 2
    assert "a question is missing" in done.stderr


@pytest.mark.parametrize("name", ["", "  ", "a\tb", "a\nb"])
def test_a_tenant_without_a_printable_name_is_refused(name: str) -> None:
    done = CliRunner().invoke(app, ["keys", "create", "--tenant", name])
    assert done.exit_code == 2
    assert "printable characters are needed" in done.stderr


def test_aligned_rows_are_never_cut() -> None:
    rows = [("id", "name"), ("key_" + "0" * 16, "名前" * 60)]
    head, line = aligned(rows)
    assert head == "id" + " " * 20 + "name"
    assert line == "  ".join(rows[1])


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", ""),
        ('{"event": "ready", "level": "info"}\nhello', ""),
        ('{"event": "refused", "code": "c", "reason": "r", "level": "critical"}\nbye', "refused: c: r"),
        ('{"event": "failed", "exception": "Trace\\nKeyError: 1", "level": "error"}', "failed: KeyError: 1"),
        ("SecurityWarning: as root\n  _warn_or_raise_security_error(uid)", ""),
        ("2026 FATAL:  no pg_hba entry\nbye", "2026 FATAL:  no pg_hba entry"),
        ("Traceback\n  raise\nValueError: no\n", "ValueError: no"),
    ],
)
def test_the_last_error_of_a_log_is_found(log: str, error: str) -> None:
    assert last_error(log) == error


def test_benchmarks_are_listed_and_an_unknown_one_is_refused() -> None:
    shown, unknown = (
        subprocess.run([ROOT / "scripts" / "bench", name], capture_output=True, text=True, check=False)
        for name in ("--help", "nope")
    )
    assert shown.returncode == 0
    assert "\nimages  " in shown.stdout
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("there is no benchmark called nope\n")


@pytest.mark.parametrize(
    ("variable", "option", "port"), [(None, False, 1), ("2", False, 2), ("2", True, 1), (None, True, 1)]
)
def test_which_database_is_meant(
    variable: str | None, option: bool, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".vqueue").mkdir()
    (tmp_path / ".vqueue" / "state.json").write_text(STATE)
    url = f"postgresql://me:word@127.0.0.1:{variable}/db" if variable else None
    given = ["--data", ".vqueue"] if option else []
    done = CliRunner().invoke(app, ["keys", "list", *given], env={"VQUEUE_DATABASE_URL": url})
    assert done.exit_code == 1
    assert f"port {port} failed: Connection refused" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: str) -> None:
    program = [Path(sys.executable).with_name("vqueue"), "--show-completion"]
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [*program, shell], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "_VQUEUE_COMPLETE" in done.stdout) == (0, True)


def test_a_shell_completes_commands() -> None:
    given = {"_VQUEUE_COMPLETE": "complete_bash", "COMP_WORDS": "vqueue wat", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("vqueue")
    done = subprocess.run([program], env={**os.environ, **given}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["watch"]
