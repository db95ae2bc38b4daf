"""`vqueue usage`: what tenants have used, and what it cost, from the database."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from app.cli.keys import aligned, printable
from app.cli.settings import DataOption, checked_settings, open_database
from app.cli.tenants import find_tenant
from app.db import make_sessions
from app.errors import RequestError
from app.tenants import Tenants
from app.usage import DEFAULT_DAYS, MOST_DAYS, Line, Usage

COUNTS = ("completed", "failed", "prompt tokens", "cached tokens", "completion tokens", "cost", "currency")
GROUPS = ("tenant", "day", "key", "model")


def usage(
    tenant: Annotated[str | None, typer.Option(help="Only this one, by name or id.")] = None,
    days: Annotated[int, typer.Option(min=1, max=MOST_DAYS, help="The last ones (UTC), today included.")] = (
        DEFAULT_DAYS
    ),
    by: Annotated[str, typer.Option(help="Beside the tenant: some of day, key, model.")] = "model",
    data: DataOption = None,
) -> None:
    """Show the jobs and tokens of each tenant, and their cost by VQUEUE_PRICES.

    In a pipe: one line each and no title, with the tenant, what --by names (day, key, model: in this order),
    jobs that were answered, that ended otherwise, tokens of prompts, of these cached, of answers, cost and
    currency (both empty where a price is missing), separated by tabs.
    """
    prices = checked_settings().prices
    with open_database(data, application="usage") as engine:
        sessions = make_sessions(engine)
        tenant_id = find_tenant(Tenants(sessions=sessions), tenant) if tenant else None
        try:
            report = Usage(sessions=sessions, prices=prices).report_all(tenant_id, days=days, by=by)
        except RequestError as error:
            raise typer.BadParameter(error.message) from error
    titles = [*(name for name in GROUPS if name in report.by), *COUNTS]
    rows = [_cells(line, report.by) for line in report.lines]
    for line in aligned([titles, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


def _cells(line: Line, by: Sequence[str]) -> list[str]:
    groups = [
        printable(str(value or "")) for name, value in zip(GROUPS, line.group, strict=True) if name in by
    ]
    numbers = (
        line.completed,
        line.failed,
        line.prompt_tokens,
        line.cached_tokens,
        line.completion_tokens,
    )
    cost = (f"{line.cost.amount:.6f}", line.cost.currency) if line.cost else ("", "")
    return [*groups, *map(str, numbers), *cost]
