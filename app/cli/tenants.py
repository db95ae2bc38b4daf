"""`vqueue tenants`: list tenants, and give them weights and limits."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from app.cli.keys import aligned, printable
from app.cli.settings import DataOption, open_database
from app.db import make_sessions
from app.store.tenants import LIMITS, TenantRow
from app.tenants import Tenants

TITLES = ("id", "tenant", "weight", "queued jobs", "bytes", "images a day", "requests a minute")
# 0 in the table sets no limit; null leaves it to the setting.
NO_LIMIT, DEFAULT = "none", "default"
VALUE = "N|none|default"
TITLE_OF = dict(zip(LIMITS, TITLES[-len(LIMITS) :], strict=True))
# What Postgres can hold.
MOST, MOST_BYTES = 2**31 - 1, 2**63 - 1
LIGHTEST, HEAVIEST = 0.001, 1000.0

tenants = typer.Typer(
    name="tenants", help="List tenants, and give them weights and limits.", no_args_is_help=True
)


@tenants.command("list")
def list_tenants(data: DataOption = None) -> None:
    """Show all tenants.

    In a pipe: one line per tenant and no title, with id, name, weight, and the tenant's limits of
    queued jobs, bytes, images a day and requests a minute, separated by tabs. `default` is the setting's.
    """
    with _tenants(data) as found:
        rows = [_cells(row) for row in found.list()]
    for line in aligned([TITLES, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


@tenants.command()
def weight(
    tenant: Annotated[str, typer.Argument(help="The name that `tenants list` shows.")],
    value: Annotated[float, typer.Argument(metavar="WEIGHT", min=LIGHTEST, max=HEAVIEST, help="1 at first.")],
    data: DataOption = None,
) -> None:
    """Set a tenant's part of a busy model: with 2, twice that of a tenant of 1."""
    with _tenants(data) as found:
        if not found.weigh(tenant, value):
            typer.echo(f"There is no tenant {tenant}.", err=True)
            raise typer.Exit(1)
    typer.echo(f"{tenant} has weight {value:g}.")


@tenants.command()
def quota(
    tenant: Annotated[str, typer.Argument(help="The name that `tenants list` shows.")],
    queued_jobs: Annotated[str | None, typer.Option(metavar=VALUE, help="Jobs that have not ended.")] = None,
    bytes_: Annotated[
        str | None, typer.Option("--bytes", metavar=VALUE, help="Of uploaded files, together.")
    ] = None,
    images_day: Annotated[
        str | None, typer.Option(metavar=VALUE, help="Images fetched from elsewhere in a day (UTC).")
    ] = None,
    requests_per_minute: Annotated[str | None, typer.Option(metavar=VALUE, help="To the API.")] = None,
    data: DataOption = None,
) -> None:
    """Set what a tenant may use, and show it beside what is in use now.

    A number, `none` for no limit, or `default` for the setting's. Without options everything stays.
    """
    given = {
        "quota_queued_jobs": _limit(queued_jobs, MOST),
        "quota_bytes": _limit(bytes_, MOST_BYTES),
        "quota_images_day": _limit(images_day, MOST),
        "requests_per_minute": _limit(requests_per_minute, MOST),
    }
    changes = {name: value for name, (is_given, value) in given.items() if is_given}
    with _tenants(data) as found:
        row = found.limit(tenant, changes)
        if row is None:
            typer.echo(f"There is no tenant {tenant}.", err=True)
            raise typer.Exit(1)
        used = found.used(row)
    limits = dict(zip(LIMITS, _cells(row)[-len(LIMITS) :], strict=True))
    rows = [(TITLE_OF[name], limits[name], str(used.get(name, ""))) for name in LIMITS]
    titles = ("", "limit", "in use")
    for line in aligned([titles, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


def find_tenant(tenants: Tenants, named: str) -> str:
    """The id of the tenant of this name, or id; exits with code 1 where there is none."""
    rows = tenants.list()
    found = [row.id for row in rows if row.name == named] or [row.id for row in rows if row.id == named]
    if not found:
        typer.echo(f"There is no tenant {named}.", err=True)
        raise typer.Exit(1)
    return found[0]


def _limit(text: str | None, most: int) -> tuple[bool, int | None]:
    """Whether an option was given, and the limit that it sets."""
    if text in (None, DEFAULT):
        return text is not None, None
    if text == NO_LIMIT:
        return True, 0
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not 0 < int(text) <= most:
        raise typer.BadParameter(f"{text!r} is no limit: a number from 1 to {most}, none or default")
    return True, int(text)


def _cells(row: TenantRow) -> tuple[str, ...]:
    limits = (row.quota_queued_jobs, row.quota_bytes, row.quota_images_day, row.requests_per_minute)
    words = [DEFAULT if one is None else str(one or NO_LIMIT) for one in limits]
    return (row.id, printable(row.name), f"{row.weight:g}", *words)


@contextmanager
def _tenants(data: Path | None) -> Iterator[Tenants]:
    with open_database(data, application="tenants") as engine:
        yield Tenants(sessions=make_sessions(engine))
