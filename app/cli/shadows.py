"""`vqueue shadows`: what shadow mode has found, from the database."""

import sys
from typing import Annotated

import typer

from app.cli.keys import aligned, printable
from app.cli.settings import DataOption, open_database
from app.db import make_sessions
from app.shadows import Differing, ShadowReport, read_report

TITLES = (
    "model",
    "other",
    "batches",
    "open",
    "pairs",
    "alike",
    "to the letter",
    "s/answer",
    "other s/answer",
)
MOST_DAYS = 366


def shadows(
    days: Annotated[int, typer.Option(min=1, max=MOST_DAYS, help="The last ones.")] = 7,
    show: Annotated[int, typer.Option(min=0, help="How many answers that differ to print.")] = 0,
    data: DataOption = None,
) -> None:
    """Show how often two models agree, and how fast each is, where VQUEUE_SHADOWS asks both.

    In a pipe: one line per pair of models and no title, separated by tabs. `alike` leaves case and space
    aside; seconds are of the model's time, over questions that neither answered from the answer cache.
    """
    with open_database(data, application="shadows") as engine:
        report = read_report(make_sessions(engine), days=days, show=show)
    rows = [_cells(total) for total in report.totals]
    for line in aligned([TITLES, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)
    for differing in report.differences:
        typer.echo(_line(differing))


def _cells(total: ShadowReport) -> list[str]:
    return [
        *(printable(name) for name in (total.model, total.other)),
        *map(str, (total.batches, total.open, total.pairs)),
        *(f"{share:.3f}" if share is not None else "" for share in (total.alike, total.exact)),
        *(f"{seconds:.4f}" if seconds is not None else "" for seconds in (total.model_s, total.other_s)),
    ]


def _line(found: Differing) -> str:
    words = (found.batch_id, found.custom_id, found.answer, found.other_answer)
    return "\t".join(printable(word) for word in words)
