"""`vqueue migrate` and `vqueue keys` from the command line, with databases that are no use yet."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from app.migrate import newest_revision
from tests.servers import Databases


@pytest.fixture
def empty_database(database_url: str) -> Iterator[str]:
    """A database beside the one of the test run, without tables."""
    databases = Databases(database_url)
    url = databases.create()
    yield url
    databases.drop(url)


def run(database_url: str, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VQUEUE_DATABASE_URL": database_url}
    whole = [sys.executable, "-m", "app.cli.main", *command]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False)


def start(database_url: str, *command: str) -> subprocess.Popen[str]:
    environment = os.environ | {"VQUEUE_DATABASE_URL": database_url}
    whole = [sys.executable, "-m", "app.cli.main", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(whole, env=environment, stdout=pipe, stderr=pipe, text=True)


def migrate(database_url: str) -> str:
    """What the command says."""
    return run(database_url, "migrate").stdout


def test_an_empty_database_gets_the_newest_schema_and_a_second_time_changes_nothing(
    empty_database: str,
) -> None:
    assert migrate(empty_database) == f"schema moved from nothing to {newest_revision()}\n"
    assert migrate(empty_database) == f"schema at {newest_revision()}\n"


def test_waiting_for_the_schema_changes_nothing_and_ends_once_it_is_there(empty_database: str) -> None:
    early = run(empty_database, "migrate", "--wait", "0")
    assert (early.returncode, early.stderr) == (1, "The schema is at nothing: run `vqueue migrate`.\n")
    with start(empty_database, "migrate", "--wait", "60") as waiting:
        migrate(empty_database)
        assert waiting.communicate(timeout=60) == (f"schema at {newest_revision()}\n", "")


@pytest.mark.parametrize("command", [("migrate",), ("keys", "list"), ("keys", "revoke", "key_x")])
def test_a_database_that_is_away_fails_without_showing_its_password(
    command: tuple[str, ...], database_url: str
) -> None:
    away = make_url(database_url).set(port=1, password="hidden-word")
    done = run(away.render_as_string(hide_password=False), *command)
    assert done.returncode == 1
    assert done.stderr.startswith("The database does not answer: ")
    assert "Connection refused" in done.stderr
    assert done.stderr.endswith("or set VQUEUE_DATABASE_URL or --data.\n")
    assert len(done.stderr.splitlines()) == 3
    assert "hidden-word" not in done.stdout + done.stderr


def test_keys_of_a_database_without_tables_are_told_of_migrate(empty_database: str) -> None:
    done = run(empty_database, "keys", "list")
    assert done.returncode == 1
    assert done.stderr == "The database has no tables yet: run `vqueue migrate`.\n"
