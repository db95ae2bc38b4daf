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
        try:
            migrations.migrate(engine)
        except migrations.Blocked as blocked:
            typer.echo(f"{blocked}.", err=True)
            raise typer.Exit(1) from blocked
        after = migrations.current_revision(engine)
    typer.echo(_told(before, after))


def _told(before: str | None, after: str | None) -> str:
    if migrations.is_newer(after):
        return f"schema at {after}, which a newer version made: left as it is"
    return f"schema at {after}" if before == after else f"schema moved from {before or 'nothing'} to {after}"
