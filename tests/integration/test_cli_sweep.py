"""`vqueue sweep` against an API."""

import json
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from app.cli.main import app
from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from tests.rows import Rows
from tests.serving import new_key, serving

MADE = ("create", "nightly", "s3://photos/in/", "--policy", "1", "--ask", "gun=Is a gun shown?")


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    allowed = {"s3_source_buckets": ("photos",), "model_name": "demo"}
    with serving(build_app(wire(settings.model_copy(update=allowed)))) as url:
        yield url


@pytest.fixture
def rows(url: str, db: Sessions, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    monkeypatch.setenv("VQUEUE_URL", f"{url}/v1")
    monkeypatch.setenv("VQUEUE_API_KEY", new_key(db))
    with capture_logs():  # the API's, which is in this process and would write between the command's lines
        yield Rows(db)


def vqueue(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sweep", *arguments])


def clusters(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["clusters", *arguments])


def test_a_sweep_is_made_shown_switched_and_deleted(rows: Rows) -> None:
    made = vqueue(*MADE, "--choices", "gun=yes, no", "--cron", "0 0 * * *", "--zone", "Asia/Tokyo")
    sweep_id = made.stdout.strip()
    assert rows.one("SELECT questions->0->'choices' FROM sweeps") == ["yes", "no"]
    assert vqueue("list").stdout.startswith(f"{sweep_id}\tnightly\tactive\t1\t")
    assert vqueue("pause", "nightly").stdout == "paused\n"
    assert vqueue("resume", sweep_id).stdout == "active\n"
    assert vqueue("backfill", "nightly", "--from", "2026-03-01", "--to", "2026-03-04").stdout == "3 runs\n"
    run_id = vqueue("run", "nightly").stdout.strip()
    assert run_id in vqueue("show", "nightly").stdout
    assert vqueue("delete", "nightly").exit_code == 0
    assert vqueue("list").stdout == ""


def test_a_diff_is_of_the_newest_run(rows: Rows) -> None:
    vqueue(*MADE)
    assert vqueue("diff", "nightly").exit_code == 2
    run_id = vqueue("run", "nightly").stdout.strip()
    rows.run("INSERT INTO sweep_changes VALUES (:run, 'a.png', 'gun', 'no', 'yes')", run=run_id)
    change = {"item": "a.png", "question": "gun", "before": "no", "after": "yes"}
    assert json.loads(vqueue("diff", "nightly").stdout) == change


def test_a_sweep_is_changed_in_what_is_given(rows: Rows) -> None:
    vqueue(*MADE, "--cron", "0 0 * * *", "--system", "Be brief.", "--priority", "background")
    done = vqueue(
        *("update", "nightly", "--policy", "2", "--ask", "knife=Is a knife shown?", "--choices"),
        *("knife=yes,no", "--cron", "", "--max-tokens", "9", "--near-duplicates", "3"),
    )
    changed = json.loads(done.stdout)
    assert [one["name"] for one in changed["questions"]] == ["knife"]
    assert (changed["cron"], changed["policy_version"]) == (None, "2")
    assert changed["body"] == {"system": "Be brief.", "max_tokens": 9}
    assert changed["batch"] | {"cascade": 0} == {
        "priority": "background",
        "cache": None,
        "cascade": 0,
        "near_duplicates": {"distance": 3},
    }


def test_images_that_look_the_same_are_listed(rows: Rows) -> None:
    assert clusters("look").stdout == "0 images\n"
    assert clusters("list").stdout == ""
    assert clusters("near", "a" * 64).exit_code == 1


def test_the_list_of_runs_says_why_one_failed(rows: Rows) -> None:
    vqueue(*MADE)
    run_id = vqueue("run", "nightly").stdout.strip()
    rows.run(
        "UPDATE sweep_runs SET state = 'failed', error_code = 'blocked_bucket',"
        " error_message = 'not\tallowed' WHERE id = :run",
        run=run_id,
    )
    last = vqueue("show", "nightly").stdout.splitlines()[-1]
    assert last.split("\t")[3::8] == ["failed", "blocked_bucket: not?allowed"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "x", "products", "--policy", "1", "--ask", "?"), 2),
        ((*MADE, "--choices", "knife=yes"), 2),
        ((*MADE, "--cron", "daily"), 1),
        (("run", "unknown"), 1),
        (("update", "unknown", "--policy", "2"), 1),
    ],
)
def test_what_is_wrong_is_told_in_a_line(rows: Rows, arguments: tuple[str, ...], code: int) -> None:
    done = vqueue(*arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (code, 1)
