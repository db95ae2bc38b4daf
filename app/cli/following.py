"""A batch on its way, shown while it runs: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vqueue import Batch, Client, VqueueError

POLL_S = 1.0
SAY_EVERY_S = 10.0


class Shown(Protocol):
    def tell(self, what: str, done: int, total: int, note: str = "") -> None: ...


class Bar:
    """On a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, note="")

    def tell(self, what: str, done: int, total: int, note: str = "") -> None:
        self._progress.update(
            self._task, description=what, completed=done, total=total or None, note=note, refresh=True
        )


class Lines:
    """Elsewhere: a line for each new state, one at its end, and one every ten seconds."""

    def __init__(self) -> None:
        self._what, self._done = "", 0
        self._said_at = 0.0

    def tell(self, what: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        is_over = done == total and done != self._done
        if what == self._what and not is_over and now < self._said_at + SAY_EVERY_S:
            return
        self._what, self._done, self._said_at = what, done, now
        counts = f" {done:,} of {total:,}" if total else ""
        typer.echo(f"{what}{counts}{', ' + note if note else ''}", err=True)


@contextmanager
def shown() -> Iterator[Shown]:
    if not sys.stderr.isatty():
        yield Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bar(progress)


def follow(api: Client, batch_id: str, show: Shown) -> Batch:
    """The batch once it has ended. An API that goes away meanwhile is waited for."""
    batch, away = api.batch(batch_id), False
    while True:
        counts = batch.request_counts
        done = counts.completed + counts.failed
        note = "the API is away, waiting" if away else f"{counts.failed:,} failed" if counts.failed else ""
        show.tell(f"{batch.id} {batch.status}", done, counts.total, note)
        if batch.ended:
            return batch
        time.sleep(POLL_S)
        try:
            batch, away = api.batch(batch_id), False
        except VqueueError as error:
            if not error.may_pass:
                raise
            away = True
