"""Tenants by the command: listed, weighed and limited."""

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import app
from app.db import Sessions
from tests.rows import Rows

DEFAULTS = "\tdefault" * 4


@pytest.fixture
def rows(db: Sessions, monkeypatch: pytest.MonkeyPatch, database_url: str) -> Rows:
    monkeypatch.setenv("VQUEUE_DATABASE_URL", database_url)
    rows = Rows(db)
    for name in ("Ada", "Bob"):
        rows.add_tenant(name)
    return rows


def vqueue(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tenants", *arguments])


def test_a_weight_is_set_and_listed(rows: Rows) -> None:
    assert vqueue("weight", "Bob", "2.5").stdout == "Bob has weight 2.5.\n"
    assert rows.one("SELECT weight FROM tenants WHERE id = 'Bob'") == 2.5
    rows.run("UPDATE tenants SET name = :name WHERE id = 'Ada'", name="Ada\x1b[31m")
    assert vqueue("list").stdout == f"Ada\tAda?[31m\t1{DEFAULTS}\nBob\tBob\t2.5{DEFAULTS}\n"


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e9", "heavy"])
def test_a_weight_that_makes_no_sense_is_refused(rows: Rows, weight: str) -> None:
    assert vqueue("weight", "Bob", "--", weight).exit_code == 2
    assert rows.one("SELECT weight FROM tenants WHERE id = 'Bob'") == 1


@pytest.mark.parametrize("named", ["Bob", "the shop"])
def test_the_audit_log_takes_names_and_ids(rows: Rows, named: str) -> None:
    vqueue("quota", "Bob", "--queued-jobs", "5")
    rows.run("UPDATE tenants SET name = 'the shop' WHERE id = 'Bob'")
    done = CliRunner().invoke(app, ["audit", "--tenant", named])
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1)


def test_the_audit_log_of_an_unknown_tenant_is_none(rows: Rows) -> None:
    assert rows
    done = CliRunner().invoke(app, ["audit", "--tenant", "nope"])
    assert (done.exit_code, done.stderr) == (1, "There is no tenant nope.\n")


def test_an_unknown_tenant_is_told_so(rows: Rows) -> None:
    done = vqueue("weight", "Carol", "2")
    assert (done.exit_code, done.stderr) == (1, "There is no tenant Carol.\n")


def test_a_quota_is_set_shown_and_noted(rows: Rows) -> None:
    rows.run("UPDATE tenants SET quota_bytes = 5, requests_per_minute = 7 WHERE id = 'Bob'")
    done = vqueue(
        "quota", "Bob", "--queued-jobs", "1000", "--bytes", "none", "--requests-per-minute", "default"
    )
    shown = "queued jobs\t1000\t0\nbytes\tnone\t0\nimages a day\tdefault\t0\nrequests a minute\tdefault\t\n"
    assert done.stdout == shown
    assert vqueue("quota", "Bob").stdout == shown
    assert vqueue("list").stdout.splitlines()[1] == "Bob\tBob\t1\t1000\tnone\tdefault\tdefault"
    changed = {"quota_queued_jobs": 1000, "quota_bytes": 0, "requests_per_minute": None}
    assert rows.table("SELECT tenant_id, action, details FROM audit_log") == [
        ("Bob", "quota.changed", changed)
    ]


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "", "9999999999", "\u0661"])
def test_a_quota_that_makes_no_sense_is_refused(rows: Rows, value: str) -> None:
    assert vqueue("quota", "Bob", f"--images-day={value}").exit_code == 2
    assert rows.one("SELECT quota_images_day FROM tenants WHERE id = 'Bob'") is None


def test_nobody_has_no_quota(rows: Rows) -> None:
    done = vqueue("quota", "Carol", "--bytes", "2")
    assert (done.exit_code, done.stderr) == (1, "There is no tenant Carol.\n")
