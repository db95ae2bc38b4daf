"""`vqueue migrate`: bring the schema to its newest version."""

import typer

from app import migrate as migrations
from app.cli.settings import DataOption, open_database


def migrate(data: DataOption = None) -> None:
    """Bring the database that VQUEUE_DATABASE_URL or --data names to the newest schema.

    Harmless when repeated.
    """
    with open_database(data, application="migrate") as engine:
        before = migrations.current_revision(engine)
        migrations.migrate(engine)
        after = migrations.current_revision(engine)
    typer.echo(
        f"schema at {after}" if before == after else f"schema moved from {before or 'nothing'} to {after}"
    )
