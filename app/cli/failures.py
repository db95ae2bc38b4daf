"""`vqueue failures` and `vqueue retry`: what failed, of what, and once more please."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from app import telemetry
from app.batches import default_brake
from app.cli.keys import aligned
from app.cli.settings import DataOption, checked_settings, open_database
from app.db import make_sessions
from app.errors import RequestError, TransientWork
from app.failures import FailureDesk, Failures, retryable
from app.limits import make_limits
from app.queue import count_dead
from app.results import SERVER_ERROR, error_type, may_pass
from app.retrying import Retries, RetryWish
from app.states import JobState
from app.store.failures import FailedBatch, FailedCode

DAY_S = 86_400
SHOWN = 20  # batches on a terminal, unless told
CELL = 60  # characters of a message in a table
BATCH_TITLES = ("batch", "tenant", "status", "jobs", "failed", "to retry", "commonest")
CODE_TITLES = ("code", "jobs", "fault", "passes")
JOB_TITLES = ("batch", "code", "jobs", "first line", "tries", "deaths", "worker", "message")


class Unanswered(StrEnum):
    """Ends of jobs that can be tried again."""

    FAILED = JobState.FAILED.value
    EXPIRED = JobState.EXPIRED.value
    CANCELLED = JobState.CANCELLED.value


def failures(
    batch: Annotated[
        list[str] | None, typer.Argument(help="Only these batches, with an example of each code.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How far back.")] = 7,
    last: Annotated[
        int | None, typer.Option(min=1, help=f"How many batches; {SHOWN}, and in a pipe all.")
    ] = None,
    code: Annotated[str | None, typer.Option(help="Only batches with jobs that failed with it.")] = None,
    passing: Annotated[
        bool, typer.Option("--passing", help="Only batches with failures that may pass: ours, transient.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Show what jobs failed of lately, in the batches of all tenants, and what can be retried.

    In a pipe: one line and no title for each batch that `vqueue retry` would take jobs of, or that is
    named: id, tenant, status, jobs, failed ones, those to retry and the commonest code, separated by tabs.
    """
    with _desk(data) as desk:
        read = desk.of(batch) if batch else desk.recent(within_s=days * DAY_S)
    found = read.with_codes(lambda one: code in (None, one) and (not passing or may_pass(one)))
    if not code and not passing:
        found = read  # also batches whose failed jobs have no code, since they never ran
    if sys.stdout.isatty():
        lines = [*newest(found, None if batch else last or SHOWN, with_jobs=bool(batch)), *_dead()]
    else:
        ready = found if batch else found.to_retry()
        lines = ["\t".join(row) for row in _batch_rows(ready.newest(last) if last else ready)]
    for line in lines:
        typer.echo(line)
    missing = set(batch or ()) - {one.id for one in read.batches}
    for name in sorted(missing):
        typer.echo(f"There is no batch {name}.", err=True)
    raise typer.Exit(1 if missing else 0)


def retry(
    batch: Annotated[list[str], typer.Argument(help="Ended batches, as `vqueue failures` names them.")],
    state: Annotated[
        list[Unanswered] | None,
        typer.Option(help="Which jobs; may be repeated. Without it: failed."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also where there is a retry already.")] = False,
    data: DataOption = None,
) -> None:
    """Have the failed jobs of ended batches tried again, each batch's in a new one.

    All of them, whatever their code. A batch that has a retry already is refused, and that one named.
    Prints the new batches, one per line.
    """
    refused = False
    wish = RetryWish(states=[JobState(one) for one in state or (Unanswered.FAILED,)])
    with _desk(data) as desk:
        for batch_id in batch:
            try:
                typer.echo(desk.retry(batch_id, wish, again=again).id)
            except RequestError as error:
                refused = True
                typer.echo(error.message, err=True)
    raise typer.Exit(1 if refused else 0)


@contextmanager
def _desk(data: Path | None) -> Iterator[FailureDesk]:
    settings = checked_settings()
    telemetry.configure_logs(log_format="console", level="WARNING")
    with open_database(data, application="failures") as engine:
        sessions = make_sessions(engine)
        limits = make_limits(sessions, settings)
        retries = Retries(sessions=sessions, limits=limits, brake=default_brake(settings))
        yield FailureDesk(sessions=sessions, retries=retries)


def newest(found: Failures, count: int | None, *, with_jobs: bool) -> list[str]:
    """The tables of so many batches, and what was left out."""
    shown = found.newest(count) if count else found
    more = len(found.batches) - len(shown.batches)
    left_out = [f"{more:,} older batches are not shown: --last shows more."] if more else []
    return [*tables(shown, with_jobs=with_jobs), *left_out]


def tables(found: Failures, *, with_jobs: bool) -> list[str]:
    """Codes, then batches; with an example of each batch's codes if wanted."""
    rows = _batch_rows(found)
    if not rows:
        return ["No batch has failed jobs."]
    codes = [[code, str(jobs), *_fault(code)] for code, jobs in found.by_code().items()]
    lines = [*aligned([CODE_TITLES, *codes]), "", *aligned([BATCH_TITLES, *rows])]
    if with_jobs:
        lines += ["", *aligned([JOB_TITLES, *map(_job_cells, found.codes)])]
    return lines


def _fault(code: str) -> tuple[str, str]:
    return "ours" if error_type(code) == SERVER_ERROR else "theirs", "may" if may_pass(code) else "no"


def _batch_rows(found: Failures) -> list[list[str]]:
    return [_batch_cells(one, found.commonest(one)) for one in found.batches]


def _batch_cells(batch: FailedBatch, commonest: FailedCode | None) -> list[str]:
    left = retryable(batch)
    to_retry = f"retried as {batch.retried_as}" if batch.retried_as else "-" if left is None else str(left)
    cells = [batch.id, batch.tenant, batch.status, str(batch.total), str(batch.failed)]
    return _shown([*cells, to_retry, commonest.code if commonest else "-"])


def _job_cells(code: FailedCode) -> list[str]:
    numbers = [code.jobs, code.line, code.attempt, code.crashes]
    jobs, line, tries, deaths = ("-" if number is None else str(number) for number in numbers)
    return _shown([code.batch_id, code.code, jobs, line, tries, deaths, code.worker or "-", code.message])


def _shown(cells: list[str]) -> list[str]:
    """In one line each; what a terminal would obey, or a tab, is shown as a question mark."""
    plain = (
        "".join(mark if mark.isprintable() else "?" for mark in " ".join(cell.split())) for cell in cells
    )
    return [cell if len(cell) <= CELL else f"{cell[: CELL - 1]}…" for cell in plain]


def _dead() -> list[str]:
    try:
        dead = count_dead(checked_settings())
    except TransientWork as error:
        return ["", error.message]
    if not dead:
        return []
    return ["", f"{dead} chunks lie in vqueue.dead: delivered too often. Their jobs go on by their leases."]
