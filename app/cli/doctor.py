"""`vqueue doctor`: looks at everything that vqueue stands on, and says what to do."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import typer

from app.cli.settings import ClientDataOption, checked_settings, find_client
from app.config import Settings
from app.doctor import LOOK_S, Finding, look_at_api, look_at_servers

# Whoever sets one of these runs servers of vqueue here, or is about to.
OF_SERVERS = {"database_url", "broker_url", "redis_url", "s3_endpoint_url", "s3_bucket"}


def doctor(data: ClientDataOption = None) -> None:
    """Check the settings, the servers that they name, and the API; each trouble comes with what to do.

    The servers are looked at where VQUEUE_DATABASE_URL, VQUEUE_BROKER_URL, VQUEUE_REDIS_URL or VQUEUE_S3_
    settings are set; the API where VQUEUE_URL and VQUEUE_API_KEY, or the folder of a `vqueue up`, say which.
    The exit code is 1 if something is missing that nothing works without.
    """
    settings = checked_settings()
    typer.echo("ok     settings")
    broken = False
    for finding in _findings(settings, data):
        mark = "ok   " if finding.fine else "WRONG" if finding.needed else "look "
        typer.echo(f"{mark}  {finding.name}: {finding.told}")
        if finding.remedy:
            typer.echo(f"       -> {finding.remedy}")
        broken = broken or (finding.needed and not finding.fine)
    raise typer.Exit(1 if broken else 0)


def _findings(settings: Settings, data: Path | None) -> Iterator[Finding]:
    of_servers = bool(OF_SERVERS & settings.model_fields_set)
    if of_servers:
        yield from look_at_servers(settings)
    try:
        # One try: where nothing answers, several would take minutes.
        client = find_client(data, retries=0, timeout_s=LOOK_S)
    except typer.BadParameter as error:
        yield Finding("api", "not looked at", str(error), needed=not of_servers)
        return
    with closing(client) as api:
        yield from look_at_api(api)
