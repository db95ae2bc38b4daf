"""`vqueue compare`: two models, or two settings of one, over the same questions."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from app import telemetry
from app.agreement import Agreement, Comparison, Pair, Reply, Side, as_json, last_line
from app.cli.keys import aligned
from app.cli.settings import checked_settings
from app.config import Settings, read_option
from app.errors import RequestError, WorkError
from app.model_list import read_source

# Named, not imported: the API's image lacks torch, and `app` never imports `workers`.
MODULE = "workers.compare"
CELL = 40  # characters of a question or an answer in the table; --json has them whole
MODEL_HELP = (
    'A folder, a hub id or a name of VQUEUE_MODELS; with settings of its own: "models/demo dtype=bfloat16".'
)


def compare(
    sample: Annotated[
        Path, typer.Option(exists=True, help="A file of batch lines, or with --question a folder of images.")
    ],
    a: Annotated[str, typer.Option("--a", help=MODEL_HELP)],
    b: Annotated[str, typer.Option("--b", help=MODEL_HELP)],
    question: Annotated[
        list[str] | None, typer.Option(help="What to ask about every image of the folder; may be repeated.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="How many disagreements to print.")] = 20,
    report: Annotated[
        Path | None, typer.Option("--json", help="Write the whole comparison here too.")
    ] = None,
) -> None:
    """Ask two models the same questions and tell how often they agree, how fast each is and what it costs.

    Images are data URLs or files beside the sample. Both run here, one after the other, on this machine.
    """
    settings = checked_settings()
    telemetry.configure_logs(log_format="console", level="WARNING")
    if sample.is_dir() and not question:
        raise typer.BadParameter("a question is missing: a folder of images needs --question")
    if question and not sample.is_dir():
        raise typer.BadParameter("--question goes with a folder of images; a file has questions of its own")
    first, second = (settings_of(option, text, settings) for option, text in (("--a", a), ("--b", b)))
    found = _run(sample, question or [], first, second, settings)
    if report is not None:
        report.write_text(json.dumps(as_json(found), indent=2, ensure_ascii=False) + "\n")
    for line in [*_tables(found, show), last_line(found)]:
        typer.echo(line)


def settings_of(option: str, text: str, settings: Settings) -> Settings:
    try:
        source, options = read_source(text, read_option)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    if source in settings.model_names:
        own = settings.for_model(settings.model_names[source])
    else:
        own = settings.model_copy(update={"model": source, "models": ()})
    return own.model_copy(update={**options, "model_name": text})


def _run(sample: Path, questions: Sequence[str], a: Settings, b: Settings, settings: Settings) -> Comparison:
    module = importlib.import_module(MODULE)
    try:
        return module.compare(module.read_sample(sample, questions, settings), a, b)
    except (RequestError, WorkError) as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(1) from error


def _tables(found: Comparison, show: int) -> list[str]:
    lines = aligned([["", "a", "b"], *_side_rows(found.a, found.b)])
    lines += ["", *aligned([["questions", "number", "alike", "but for case and space"], *_shares(found)])]
    apart = found.disagreements()
    if shown := apart[:show]:
        cells = [["not alike", "question", "a", "b"], *map(_apart, shown)]
        lines += ["", *aligned(cells)]
    if len(apart) > len(shown):
        lines += [f"and {len(apart) - len(shown)} more"]
    return [*lines, ""]


def _side_rows(a: Side, b: Side) -> list[list[str]]:
    sides = (a, b)
    endings = sorted({ending for side in sides for ending in side.endings()})
    return [
        ["model", *(side.name for side in sides)],
        ["questions/s", *(f"{side.per_s:.2f}" for side in sides)],
        ["CPU s per question", *(f"{side.cpu_s_each:.4f}" for side in sides)],
        *([f"ended by {name}", *(str(side.endings().get(name, 0)) for side in sides)] for name in endings),
    ]


def _shares(found: Comparison) -> list[list[str]]:
    rows = {"all": found.agreement(), **found.by_kind()}
    return [[_short(name), *_share(one)] for name, one in rows.items()]


def _share(one: Agreement) -> list[str]:
    return [str(one.questions), f"{one.share:.3f}", f"{one.normalised_share:.3f}"]


def _apart(one: Pair) -> list[str]:
    return [_short(one.question.id), _short(one.question.text), _said(one.a), _said(one.b)]


def _said(reply: Reply) -> str:
    return f"({reply.ending})" if reply.text is None else _short(reply.text)


def _short(text: str) -> str:
    """One line of the table; what a terminal would obey is shown as a question mark."""
    line = "".join(mark if mark.isprintable() else "?" for mark in " ".join(text.split()))
    return line if len(line) <= CELL else f"{line[: CELL - 1]}…"
