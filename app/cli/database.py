"""`vqueue migrate`: bring the schema to its newest version."""

import typer

from app import migrate as migrations
from app.config import read_settings
from app.db import is_outage, make_engine


def migrate() -> None:
    """Bring the database that VQUEUE_DATABASE_URL names to the newest schema. Harmless when repeated."""
    settings = read_settings()
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="migrate")
    try:
        before = migrations.current_revision(engine)
        migrations.migrate(engine)
        after = migrations.current_revision(engine)
    except Exception as error:
        if not is_outage(error):
            raise
        typer.echo(f"The database does not answer: {error.__cause__}", err=True)
        raise typer.Exit(1) from error
    finally:
        engine.dispose()
    typer.echo(
        f"schema at {after}" if before == after else f"schema moved from {before or 'nothing'} to {after}"
    )
