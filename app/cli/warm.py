"""`vqueue warm`: have images encoded, and instructions worked through, before anybody asks."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.settings import ClientDataOption, checked_settings, find_client
from app.errors import WorkError
from app.objects import make_objects
from app.warm import WARM, WINDOW, Summary, UnreadableCatalog, image_line, instruction_line, read_catalog
from vqueue import BatchFailed, Client, VqueueError

POLL_S = 2.0
BATCH_LINES = 10_000


def warm(
    prefix: Annotated[
        str | None, typer.Option(help="s3://bucket/prefix: every object there is an image.")
    ] = None,
    catalog: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A .csv, or lines: URLs or JSON.")
    ] = None,
    column: Annotated[str, typer.Option(help="Where a catalog names its images.")] = "image",
    instructions: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="A file with one system prompt.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="For which; the first that is served.")] = None,
    detail: Annotated[Literal["auto", "low"], typer.Option(help="As the questions will say.")] = "auto",
    data: ClientDataOption = None,
) -> None:
    """Fill the caches: as a batch of the least urgent work, whose jobs the workers take like any others.

    VQUEUE_URL and VQUEUE_API_KEY say where and for which tenant. Features go to Redis, for all workers;
    an instruction's prefix stays in the memory of the worker that takes its job.
    """
    client = find_client(data)
    if not (prefix or catalog or instructions):
        raise typer.BadParameter("say what to warm: --prefix, --catalog or --instructions")
    summary = Summary()
    try:
        with closing(client) as api:
            name = model or api.models()[0]
            images = dict.fromkeys(chain(_listed(prefix), read_catalog(catalog, column) if catalog else ()))
            lines = chain(
                (image_line(image, number=at, model=name, detail=detail) for at, image in enumerate(images)),
                (
                    instruction_line(path.read_text(), number=at, model=name)
                    for at, path in enumerate(instructions or ())
                ),
            )
            while part := list(islice(lines, BATCH_LINES)):
                _run(api, part, summary)
    except (VqueueError, UnreadableCatalog, WorkError, UnicodeDecodeError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    typer.echo(str(summary))
    raise typer.Exit(1 if summary.failures else 0)


def _listed(prefix: str | None) -> Iterator[str]:
    if prefix is None:
        return
    bucket, _, start = prefix.removeprefix("s3://").partition("/")
    if not prefix.startswith("s3://") or not bucket:
        raise typer.BadParameter("a prefix looks like s3://bucket/prefix")
    with closing(make_objects(checked_settings())) as objects:
        found = False
        for key in objects.keys(start, bucket=bucket):
            found = True
            yield f"s3://{bucket}/{key}"
    if not found:
        raise UnreadableCatalog(f"no key in the bucket {bucket!r} begins with {start!r}")


def _run(api: Client, lines: Sequence[bytes], summary: Summary) -> None:
    """One batch, awaited. Interrupted, it goes on by itself."""
    file = api.upload(b"".join(lines), name="warm.jsonl")
    batch = api.create_batch(file.id, completion_window=WINDOW, metadata={WARM: "on"})
    typer.echo(f"{batch.id}: {len(lines)} jobs", err=True)
    while not batch.ended:
        time.sleep(POLL_S)
        batch = api.batch(batch.id)
    if batch.unread:
        raise BatchFailed(batch.id, batch.reasons)
    for result in api.results(batch.id):
        summary.ended(result)
