"""`vqueue watch`, `cancel` and `export`: batches that were handed in."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.following import follow, shown
from app.cli.keys import say
from app.cli.run import FORMATS, INTERRUPTED, told
from app.cli.settings import ClientDataOption, find_client
from app.runs.base import WrongRun
from app.runs.notebook import Notebook
from app.runs.restore import Mender, restore
from app.runs.state import notebook_file
from vqueue import Batch, BatchFailed, Client, VqueueError

NEWEST = 20


def open_batches(incomplete: str) -> list[str]:
    """For shells that complete ids; nothing where no API is found."""
    try:
        with closing(find_client(None)) as api:
            return [one.id for one in api.batches(limit=NEWEST).data if one.id.startswith(incomplete)]
    except (VqueueError, typer.BadParameter):
        return []


BatchArgument = Annotated[str, typer.Argument(help="The batch's id.", autocompletion=open_batches)]


def watch(
    batch: Annotated[
        list[str] | None, typer.Argument(help="Which batches; all that run.", autocompletion=open_batches)
    ] = None,
    data: ClientDataOption = None,
) -> None:
    """Show how far batches are until they have ended; the exit code is 1 if something has no answer."""
    failed = False
    with told(), closing(find_client(data)) as api:
        try:
            for batch_id in batch or _running(api):
                with shown() as show:
                    ended = follow(api, batch_id, show)
                if ended.status == "failed":
                    say(str(BatchFailed(ended.id, ended.reasons)) if ended.unread else _stopped(ended))
                failed = failed or ended.status != "completed" or ended.request_counts.failed > 0
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(1 if failed else 0)


def cancel(
    batch: Annotated[list[str], typer.Argument(help="Which batches.", autocompletion=open_batches)],
    data: ClientDataOption = None,
) -> None:
    """Stop batches; what is answered by then stays."""
    with told(), closing(find_client(data)) as api:
        for batch_id in batch:
            stopped = api.cancel(batch_id)
            typer.echo(f"{stopped.id} {stopped.status}")


def export(
    batch: BatchArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv, .parquet, .jsonl or .ndjson.")],
    rows: Annotated[Literal["all", "completed", "failed"], typer.Option(help="Which.")] = "all",
    only_failed: Annotated[bool, typer.Option("--only-failed", help="The same as --rows failed.")] = False,
    no_retries: Annotated[
        bool, typer.Option("--no-retries", help="Only the batch's own answers, not those of its retries.")
    ] = False,
    answers_only: Annotated[
        bool, typer.Option("--answers-only", help="Without the table's own columns, also when it is gone.")
    ] = False,
    data: ClientDataOption = None,
) -> None:
    """Write a batch's answers to a file, with the table that they are about."""
    if out.suffix.lower().lstrip(".") not in FORMATS:
        raise typer.BadParameter(f"-o {out}: the name must end in {', '.join(f'.{one}' for one in FORMATS)}")
    with told(), closing(find_client(data)) as api:
        columns = "answers" if answers_only else "all"
        api.export(
            batch, out, rows="failed" if only_failed else rows, retries=not no_retries, columns=columns
        )
        if sent := Notebook(notebook_file(out)).sent():
            restore(out, Mender(sent))
        typer.echo(out)


def _stopped(batch: Batch) -> str:
    """Why it was stopped on its way, by the failure brake for instance."""
    return "\n".join([f"{batch.id} was stopped:", *map(str, batch.reasons)])


def _running(api: Client) -> list[str]:
    """The oldest first."""
    running = [one.id for one in api.batches(limit=100).data if not one.ended]
    if not running:
        raise WrongRun("no batch runs: name one to see how it ended")
    return running[::-1]
