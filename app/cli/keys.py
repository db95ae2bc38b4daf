"""`vqueue keys`: make, list and revoke API keys."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size

from app.auth import ALL, Keys, Scope
from app.cli.settings import DataOption, open_database
from app.db import make_sessions
from app.store.keys import KeyRow

TITLES = ("id", "tenant", "name", "key", "created", "expires", "revoked", "scopes", "used")

keys = typer.Typer(name="keys", help="Make, list and revoke API keys.", no_args_is_help=True)


def _named(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise typer.BadParameter("printable characters are needed")
    return text


@keys.command()
def create(
    tenant: Annotated[
        str, typer.Option(callback=_named, help="Whose key it is; made if there is no such tenant.")
    ],
    name: Annotated[str, typer.Option(callback=_named, help="What the key is for.")] = "default",
    expires_days: Annotated[int | None, typer.Option(min=1, max=36_500, help="Days it is good for.")] = None,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="What it may be used for; may be repeated. All without it.")
    ] = None,
    data: DataOption = None,
) -> None:
    """Make a key and print it, once: only its hash is kept."""
    scopes = [one.value for one in scope or ()] or [ALL]
    with _keys(data) as found:
        made = found.create(tenant=tenant, name=name, expires_days=expires_days, scopes=scopes)
    typer.echo(f"{made.id} of tenant {made.tenant_id}; keep the key, it is not shown again:", err=True)
    typer.echo(made.secret)


@keys.command("list")
def list_keys(data: DataOption = None) -> None:
    """Show all keys, without their secrets.

    In a pipe: one line per key and no title, with id, tenant, name, beginning of the key, and when it was
    created, expires and was revoked, its scopes, and when it was last used, separated by tabs.
    """
    with _keys(data) as found:
        rows = [_cells(key) for key in found.list()]
    for line in aligned([TITLES, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")], data: DataOption = None
) -> None:
    """Close a key at once and for good."""
    with _keys(data) as found:
        before = next((key.revoked_at for key in found.list() if key.id == key_id), None)
        if not found.revoke(key_id):
            typer.echo(f"There is no key {key_id}.", err=True)
            raise typer.Exit(1)
    typer.echo(f"{key_id} was revoked already, {_shown(before)}." if before else f"{key_id} is revoked.")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines with columns below each other. Nothing is cut: a narrow terminal breaks the lines."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


@contextmanager
def _keys(data: Path | None) -> Iterator[Keys]:
    with open_database(data, application="keys") as engine:
        yield Keys(sessions=make_sessions(engine))


def _cells(key: KeyRow) -> list[str]:
    moments = (key.created_at, key.expires_at, key.revoked_at)
    cells = [key.id, key.tenant, key.name, f"{key.prefix}…", *map(_shown, moments)]
    cells += [" ".join(key.scopes), _shown(key.last_used_at)]
    return [printable(cell) for cell in cells]


def printable(cell: str) -> str:
    """A tab or an escape sequence in a name must not pass for ours."""
    return "".join(mark if mark.isprintable() else "?" for mark in cell)


def say(told: str) -> None:
    """What others wrote, an id of a table for instance, must not steer the terminal."""
    for line in told.split("\n"):
        typer.echo(printable(line), err=True)


def _shown(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M") if moment else ""
