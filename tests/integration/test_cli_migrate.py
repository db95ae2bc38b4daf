"""`vqueue migrate` from the command line."""

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


def migrate(database_url: str) -> str:
    """What the command says."""
    environment = os.environ | {"VQUEUE_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "app.cli.main", "migrate"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_an_empty_database_gets_the_newest_schema_and_a_second_time_changes_nothing(
    empty_database: str,
) -> None:
    assert migrate(empty_database) == f"schema moved from nothing to {newest_revision()}\n"
    assert migrate(empty_database) == f"schema at {newest_revision()}\n"


def test_a_database_that_is_away_fails_without_showing_its_password(database_url: str) -> None:
    away = make_url(database_url).set(port=1, password="hidden-word")
    environment = os.environ | {"VQUEUE_DATABASE_URL": away.render_as_string(hide_password=False)}
    command = [sys.executable, "-m", "app.cli.main", "migrate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("The database does not answer: ")
    assert "Connection refused" in done.stderr
    assert "hidden-word" not in done.stdout + done.stderr
