"""`vqueue results`: a batch's results as JSON lines, while it runs."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Literal

import typer

from app.cli.keys import say
from app.cli.settings import ClientDataOption, find_client
from app.results import as_line
from vqueue import BatchFailed, Client, ResultPage, VqueueError

POLL_S = 2.0


def results(
    batch: Annotated[str, typer.Argument(help="The batch's id.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the batch's last job.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only those behind this number (`seq`).")] = 0,
    status: Annotated[
        Literal["completed", "failed"] | None, typer.Option(help="Only answers, or only the others.")
    ] = None,
    data: ClientDataOption = None,
) -> None:
    """Print a batch's results, one JSON object per line, in the order in which its jobs ended.

    Each is the line of the output or error file with two more fields: `seq`, its number in this order, and
    `line`, that of the input file. VQUEUE_URL and VQUEUE_API_KEY say where and for which tenant.
    Following, it waits for an API that has gone away.
    """
    reached = after
    try:
        with closing(find_client(data)) as api:
            for page in _pages(api, batch, after=after, status=status, follow=follow):
                for result in page.data:
                    typer.echo(as_line(result.model_dump(exclude_unset=True)), nl=False)
                reached = page.last_seq
    except VqueueError as error:
        say(str(error))
        if reached:
            typer.echo(f"go on with --after {reached}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.echo(f"go on with --after {reached}", err=True)
        raise typer.Exit(130) from None


def _pages(api: Client, batch: str, *, after: int, status: str | None, follow: bool) -> Iterator[ResultPage]:
    """Page by page. Where we follow and were answered once, an API that is away is waited for."""
    answered = away = False
    while True:
        try:
            page = api.results_page(batch, after=after, status=status)
        except VqueueError as error:
            if not (error.may_pass and follow and answered):
                raise
            if not away:
                typer.echo(f"{error}; waiting", err=True)
            away = True
            time.sleep(POLL_S)
            continue
        answered, away = True, False
        yield page
        after = page.last_seq
        if page.ended and not after and (found := api.batch(batch)).unread:
            raise BatchFailed(batch, found.reasons)
        if page.has_more:
            continue
        if page.ended or not follow:
            return
        time.sleep(POLL_S)
