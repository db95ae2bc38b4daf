"""`vqueue failures` and `vqueue retry`: what failed, of what, and once more please."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from app.limits import Limits
from app.queue import count_dead
from app.results import SERVER_ERROR, error_type, may_pass
from app.retrying import Retries, RetryWish
from app.states import JobState
from app.store.failures import FailedBatch, FailedCode

DAY_S = 86_400
CELL = 60  # characters of a message in a table
BATCH_TITLES = ("batch", "tenant", "status", "jobs", "failed", "to retry", "commonest")
CODE_TITLES = ("code", "jobs", "fault", "passes")
JOB_TITLES = ("batch", "code", "jobs", "first line", "tries", "deaths", "worker", "message")


def failures(
    batch: Annotated[
        list[str] | None, typer.Argument(help="Only these batches, with an example of each code.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How far back.")] = 7,
    last: Annotated[int, typer.Option(min=1, max=1000, help="How many batches.")] = 20,
    data: DataOption = None,
) -> None:
    """Show what jobs failed of lately, in the batches of all tenants, and what can be retried.

    In a pipe: one line per batch and no title, with id, tenant, status, jobs, failed ones, those that a retry
    would take (- while it runs) and the commonest code, separated by tabs. `vqueue retry` takes the ids.
    """
    with _desk(data) as desk:
        found = desk.of(batch) if batch else desk.recent(within_s=days * DAY_S, limit=last)
    if sys.stdout.isatty():
        lines = [*tables(found, with_jobs=bool(batch)), *_dead()]
    else:
        lines = ["\t".join(row) for row in _batch_rows(found)]
    for line in lines:
        typer.echo(line)


def retry(
    batch: Annotated[list[str], typer.Argument(help="Ended batches, as `vqueue failures` names them.")],
    state: Annotated[list[JobState] | None, typer.Option(help="Which jobs; may be repeated.")] = None,
    data: DataOption = None,
) -> None:
    """Have the failed jobs of ended batches tried again, each batch's in a new one.

    The same command within half an hour makes no second one. Prints the new batches, one per line.
    """
    refused = False
    wish = RetryWish(states=state or [JobState.FAILED])
    with _desk(data) as desk:
        for batch_id in batch:
            try:
                typer.echo(desk.retry(batch_id, wish).id)
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
        limits = Limits(
            sessions=sessions,
            backlog_max_jobs=settings.backlog_max_jobs,
            disk_min_free_bytes=settings.disk_min_free_bytes,
            data_dir=settings.data_dir,
        )
        retries = Retries(sessions=sessions, limits=limits, brake=default_brake(settings))
        yield FailureDesk(sessions=sessions, retries=retries)


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
    cells = [batch.id, batch.tenant, batch.status, str(batch.total), str(batch.failed)]
    return _shown([*cells, "-" if left is None else str(left), commonest.code if commonest else "-"])


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
