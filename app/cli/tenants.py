"""`vqueue tenants`: list tenants, and give them weights."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from app.cli.keys import aligned, printable
from app.cli.settings import DataOption, open_database
from app.db import make_sessions
from app.tenants import Tenants

TITLES = ("id", "tenant", "weight")
LEAST, MOST = 0.001, 1000.0

tenants = typer.Typer(name="tenants", help="List tenants, and give them weights.", no_args_is_help=True)


@tenants.command("list")
def list_tenants(data: DataOption = None) -> None:
    """Show all tenants.

    In a pipe: one line per tenant and no title, with id, name and weight, separated by tabs.
    """
    with _tenants(data) as found:
        rows = [(row.id, printable(row.name), f"{row.weight:g}") for row in found.list()]
    for line in aligned([TITLES, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


@tenants.command()
def weight(
    tenant: Annotated[str, typer.Argument(help="The name that `tenants list` shows.")],
    value: Annotated[float, typer.Argument(metavar="WEIGHT", min=LEAST, max=MOST, help="1 at first.")],
    data: DataOption = None,
) -> None:
    """Set a tenant's part of a busy model: with 2, twice that of a tenant of 1."""
    with _tenants(data) as found:
        if not found.weigh(tenant, value):
            typer.echo(f"There is no tenant {tenant}.", err=True)
            raise typer.Exit(1)
    typer.echo(f"{tenant} has weight {value:g}.")


@contextmanager
def _tenants(data: Path | None) -> Iterator[Tenants]:
    with open_database(data, application="tenants") as engine:
        yield Tenants(sessions=make_sessions(engine))
