"""`vqueue keys`: make, list and revoke API keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from app.auth import Keys
from app.config import read_settings
from app.db import make_engine, make_sessions

keys = typer.Typer(name="keys", help="Make, list and revoke API keys.", no_args_is_help=True)


@keys.command()
def create(
    tenant: Annotated[str, typer.Option(help="Whose key it is; made if there is no such tenant.")],
    name: Annotated[str, typer.Option(help="What the key is for.")] = "default",
    expires_days: Annotated[int | None, typer.Option(min=1, max=36_500, help="Days it is good for.")] = None,
) -> None:
    """Make a key and print it, once: only its hash is kept."""
    with _keys() as found:
        made = found.create(tenant=tenant, name=name, expires_days=expires_days)
    typer.echo(f"{made.id} of tenant {made.tenant_id}; keep the key, it is not shown again:", err=True)
    typer.echo(made.secret)


@keys.command("list")
def list_keys() -> None:
    """Show all keys, without their secrets."""
    table = Table("id", "tenant", "name", "key", "created", "expires", "revoked")
    with _keys() as found:
        for key in found.list():
            moments = (key.created_at, key.expires_at, key.revoked_at)
            table.add_row(key.id, key.tenant, key.name, f"{key.prefix}…", *map(_shown, moments))
    Console().print(table)


@keys.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")]) -> None:
    """Close a key at once and for good."""
    with _keys() as found:
        if not found.revoke(key_id):
            typer.echo(f"There is no key {key_id}.", err=True)
            raise typer.Exit(1)
    typer.echo(f"{key_id} is revoked.")


@contextmanager
def _keys() -> Iterator[Keys]:
    settings = read_settings()
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="keys")
    yield Keys(sessions=make_sessions(engine))
    engine.dispose()


def _shown(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M") if moment else ""
