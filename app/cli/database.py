"""`vqueue migrate`: bring the schema to its newest version, or wait until another process has."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from app import migrate as migrations
from app.cli.settings import DataOption, open_database
from app.db import is_outage

POLL_S = 1.0
WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="Change nothing: wait until the schema is there, so long at most (code 1 then).",
    ),
]


def migrate(data: DataOption = None, wait: WaitOption = None) -> None:
    """Bring the database that VQUEUE_DATABASE_URL or --data names to the newest schema.

    Harmless when repeated.
    """
    with open_database(data, application="migrate") as engine:
        if wait is not None:
            _wait(lambda: migrations.current_revision(engine), time.monotonic() + wait)
            return
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


def _wait(read: Callable[[], str | None], until_s: float) -> None:
    """Poll until this version can work with the schema; a database that is away may come yet."""
    while not _is_there(read, over=time.monotonic() >= until_s):
        time.sleep(POLL_S)


def _is_there(read: Callable[[], str | None], *, over: bool) -> bool:
    try:
        found = read()
    except Exception as error:
        if over or not is_outage(error):
            raise
        return False
    there = migrations.serves(found)
    if there:
        typer.echo(f"schema at {found}")
    elif over:
        typer.echo(f"The schema is at {found or 'nothing'}: run `vqueue migrate`.", err=True)
        raise typer.Exit(1)
    return there
