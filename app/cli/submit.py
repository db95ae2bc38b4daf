"""`vqueue submit` and `vqueue check`: hand work in without waiting, or have it read without running it."""

import json
import sys
from contextlib import closing
from typing import Any

import typer

from app.cli.asking import Asked, asking
from app.cli.following import Shown, follow, shown
from app.cli.run import told
from app.cli.settings import find_client
from app.runs.notebook import Notebook
from app.runs.preflight import look_ahead
from app.runs.wish import hand_in
from vqueue import Batch, Client


@asking
def submit(asked: Asked) -> None:
    """Hand in a batch and print its id: `vqueue watch` shows it, `vqueue export` writes its answers."""
    with told(), closing(find_client(asked.data)) as api, shown() as show:
        batch = _hand_in(api, asked, show, dry_run=False)
    typer.echo(batch.id)


@asking
def check(asked: Asked) -> None:
    """Have an input read to its end without running anything, and print what was found.

    The exit code is 1 if a row or line is wrong. In a pipe the report is JSON.
    """
    with told(), closing(find_client(asked.data)) as api, shown() as show:
        batch = follow(api, _hand_in(api, asked, show, dry_run=True).id, show)
    report = batch.vqueue.report or {}
    errors = [str(error) for error in batch.reasons]
    if sys.stdout.isatty():
        for line in [*_told(report), *errors]:
            typer.echo(line)
    else:
        typer.echo(
            json.dumps({"status": batch.status, "errors": errors, "report": report}, ensure_ascii=False)
        )
    raise typer.Exit(1 if errors or batch.status != "completed" or report.get("bad_lines") else 0)


def _hand_in(api: Client, asked: Asked, show: Shown, *, dry_run: bool) -> Batch:
    wish = asked.wish()
    look_ahead(api, wish)
    handed = hand_in(
        api,
        wish,
        Notebook(None),
        say=lambda line: typer.echo(line, err=True),
        sent=lambda done, total: show.tell("pictures sent", done, total),
        refused={},
    )
    return api.create_batch(
        handed.input_file_id,
        table=handed.table,
        completion_window=wish.window,
        strict=wish.strict,
        cache=wish.cache,
        cascade=wish.cascade,
        near_duplicates=wish.near_duplicates,
        dry_run=dry_run,
    )


def _told(report: dict[str, Any], within: str = "") -> list[str]:
    """A line for each value, named by the way to it."""
    lines: list[str] = []
    for name, value in report.items():
        if isinstance(value, dict):
            lines += _told(value, f"{within}{name}.")
        elif isinstance(value, list):
            lines += [f"{within}{name}: {json.dumps(one, ensure_ascii=False)}" for one in value]
        else:
            lines.append(f"{within}{name}: {'-' if value is None else value}")
    return lines
