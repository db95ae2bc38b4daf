"""`vqueue results`: a batch's results as JSON lines, while it runs."""

import time
from contextlib import closing
from typing import Annotated, Literal

import typer

from app.api_client import ApiRefused
from app.cli.settings import environment_client
from app.results import as_line

POLL_S = 2.0


def results(
    batch: Annotated[str, typer.Argument(help="The batch's id.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the batch's last job.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only those behind this number (`seq`).")] = 0,
    status: Annotated[
        Literal["completed", "failed"] | None, typer.Option(help="Only answers, or only the others.")
    ] = None,
) -> None:
    """Print a batch's results, one JSON object per line, in the order in which its jobs ended.

    Each is the line of the output or error file with two more fields: `seq`, its number in this order, and
    `line`, that of the input file. VQUEUE_URL and VQUEUE_API_KEY say where and for which tenant.
    """
    try:
        with closing(environment_client()) as api:
            while True:
                page = api.results(batch, after=after, status=status)
                for result in page["data"]:
                    typer.echo(as_line(result), nl=False)
                after = page["last_seq"]
                if page["has_more"]:
                    continue
                if page["ended"] or not follow:
                    break
                time.sleep(POLL_S)
    except ApiRefused as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.echo(f"go on with --after {after}", err=True)
        raise typer.Exit(130) from None
