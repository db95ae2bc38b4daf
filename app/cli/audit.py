"""`vqueue audit`: who did what, from the database."""

import json
import sys
from typing import Annotated

import typer

from app.audit import AuditLog
from app.cli.keys import aligned, printable
from app.cli.settings import DataOption, open_database
from app.cli.tenants import find_tenant
from app.db import make_sessions
from app.store.audit import AuditRow
from app.tenants import Tenants

TITLES = ("when", "tenant", "key", "what", "object", "request", "details")
MOST = 1000


def audit(
    tenant: Annotated[
        str | None, typer.Option(help="Only what was done for this tenant, by name or id.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest.")] = 50,
    data: DataOption = None,
) -> None:
    """Show who did what, the newest first.

    In a pipe: one line each and no title, with time, tenant, key (empty: a command on the machine), action,
    object, request and details, separated by tabs.
    """
    with open_database(data, application="audit") as engine:
        sessions = make_sessions(engine)
        tenant_id = find_tenant(Tenants(sessions=sessions), tenant) if tenant else None
        page = AuditLog(sessions=sessions).read(tenant_id, limit=last, after=None)
    rows = [_cells(row) for row in page.rows]
    for line in aligned([TITLES, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


def _cells(row: AuditRow) -> list[str]:
    at = row.at.strftime("%Y-%m-%d %H:%M:%S")
    details = json.dumps(row.details, ensure_ascii=False) if row.details else ""
    cells = (at, row.tenant_id, row.key_id, row.action, row.object_id, row.request_id, details)
    return [printable(cell or "") for cell in cells]
