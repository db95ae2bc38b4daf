"""Bring the schema to its newest version beside processes that work on it; several may try at once."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from app.models import metadata

# Any fixed number: the advisory lock under which one process migrates while the others wait.
MIGRATION_LOCK = 7_305_001
# Behind a migration that waits for a table's lock, everybody else waits for that table, too: so it lets them
# go first again and again. Ours hold a lock for milliseconds, but a backup of somebody's for its whole time.
LOCK_WAIT_S = 2
LOCK_TRIES = 60
PAUSE_S = 1.0
IN_THE_WAY = ("55P03", "40P01")  # PostgreSQL's own codes of a lock that is not to be had, and of a deadlock


class Blocked(Exception):
    """Other sessions keep a table locked; what was migrated before stays, and the next try goes on there."""


def migrate(engine: Engine, revision: str = "head", *, tries: int = LOCK_TRIES) -> None:
    """Run the migrations up to `revision`, each in a transaction of its own; doing it twice is harmless.

    A schema that a newer version has made is left as it is. Raises Blocked after so many waits for a lock.
    """
    with engine.connect() as connection, _alone(connection):
        if not is_newer(_revision_of(connection)):
            connection.commit()  # else alembic takes this transaction for the one of all migrations
            _with_patience(lambda: command.upgrade(_config(connection), revision), connection, tries)


def current_revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return _revision_of(connection)


@cache
def newest_revision() -> str | None:
    """Read once: readiness asks at every probe."""
    return scripts().get_current_head()


def scripts() -> ScriptDirectory:
    """All migrations."""
    return ScriptDirectory.from_config(_config())


def is_newer(revision: str | None) -> bool:
    """Whether a newer version has made it: such a schema still serves this one (docs/upgrades.md).

    Revisions are numbers, so one that we do not know tells by itself where it belongs.
    """
    newest = newest_revision() or ""
    return revision is not None and revision.isdecimal() and revision > newest


def serves(revision: str | None) -> bool:
    """Whether this version can work with a schema: its own, or that of a newer one."""
    return revision == newest_revision() or is_newer(revision)


def drift(engine: Engine) -> list[object]:
    """How the migrated schema differs from app.models; empty when a migration was not forgotten."""
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the lock of all who migrate. It is asked for again and again, as a wait would be a transaction:

    whoever creates an index concurrently waits for all of those, and would wait for us.
    """
    while not _execute(connection, "SELECT pg_try_advisory_lock(:key)"):
        time.sleep(PAUSE_S)
    try:
        yield
    finally:
        connection.rollback()
        _execute(connection, "SELECT pg_advisory_unlock(:key)")


def _with_patience(run: Callable[[], None], connection: Connection, tries: int) -> None:
    connection.execute(text(f"SET lock_timeout = '{LOCK_WAIT_S}s'"))
    connection.commit()
    try:
        for left in reversed(range(tries)):
            if _has_run(run):
                return
            time.sleep(PAUSE_S if left else 0)
    finally:
        connection.rollback()
        connection.execute(text("RESET lock_timeout"))
        connection.commit()
    raise Blocked(
        "Other sessions keep a table locked: see pg_stat_activity for backups and idle transactions"
    )


def _has_run(run: Callable[[], None]) -> bool:
    try:
        run()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) not in IN_THE_WAY:
            raise
        return False
    return True


def _execute(connection: Connection, statement: str) -> bool:
    done = bool(connection.execute(text(statement), {"key": MIGRATION_LOCK}).scalar_one())
    connection.commit()
    return done
