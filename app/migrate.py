"""Bring the schema to its newest version; several processes may try at once."""

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from app.models import metadata

# Any fixed number: the advisory lock under which one process migrates while the others wait.
MIGRATION_LOCK = 7_305_001


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def migrate(engine: Engine, revision: str = "head") -> None:
    """Run the migrations up to `revision`; doing it twice is harmless."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '60s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        command.upgrade(_config(connection), revision)


def current_revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def drift(engine: Engine) -> list[object]:
    """How the migrated schema differs from app.models; empty when a migration was not forgotten."""
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))
