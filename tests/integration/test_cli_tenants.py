"""Tenants by the command: listed, and weighed."""

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import app
from app.db import Sessions
from tests.rows import Rows


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
    assert vqueue("list").stdout == "Ada\tAda?[31m\t1\nBob\tBob\t2.5\n"


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e9", "heavy"])
def test_a_weight_that_makes_no_sense_is_refused(rows: Rows, weight: str) -> None:
    assert vqueue("weight", "Bob", "--", weight).exit_code == 2
    assert rows.one("SELECT weight FROM tenants WHERE id = 'Bob'") == 1


def test_an_unknown_tenant_is_told_so(rows: Rows) -> None:
    done = vqueue("weight", "Carol", "2")
    assert (done.exit_code, done.stderr) == (1, "There is no tenant Carol.\n")
