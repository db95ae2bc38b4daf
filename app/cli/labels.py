"""`vqueue labels` and `vqueue review`: answers by their labels, and what people say of them."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.keys import aligned, printable
from app.cli.options import sharing
from app.cli.run import told
from app.cli.settings import ClientDataOption, find_client
from vqueue import AnswerFilters, LabelledAnswer, PairAgreement

LIST_TITLES = ("job", "item", "question", "field", "label", "review", "model", "policy", "answered")
AGREEMENT_TITLES = ("question", "field", "one", "other", "answers", "agreed", "agreement", "kappa")
PAGE = 1000
CELL = 60  # characters on a terminal
GROUPS = "label, field, question, policy_version, day, model, review"
STATES = {"confirm": "confirmed", "overturn": "overturned"}

labels = typer.Typer(name="labels", help="Count and list answers by their labels.", no_args_is_help=True)
review = typer.Typer(
    name="review", help="Confirm or overturn answers; export the corrections.", no_args_is_help=True
)
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The answer's job, as `labels list` shows.")]
FieldOption = Annotated[str | None, typer.Option(help="Which field of an answer that has several.")]
NoteOption = Annotated[str | None, typer.Option(help="Why.")]


@dataclass(frozen=True)
class Chosen:
    """The options by which answers are chosen."""

    batch: Annotated[str | None, typer.Option(help="Only answers of this batch.")] = None
    question: Annotated[str | None, typer.Option(help="Only answers to it, by its name.")] = None
    item: Annotated[str | None, typer.Option(help="Only answers about it, as `labels list` names it.")] = None
    label: Annotated[str | None, typer.Option(help="Only this label.")] = None
    field: Annotated[str | None, typer.Option(help="Only this field of the answers.")] = None
    policy_version: Annotated[str | None, typer.Option(help="Only of this policy version.")] = None
    model: Annotated[str | None, typer.Option(help="Only answers of this model.")] = None
    reviewed: Annotated[
        Literal["none", "confirmed", "overturned"] | None, typer.Option(help="Only those reviewed so.")
    ] = None
    since: Annotated[str | None, typer.Option(help="Only from then on, such as 2026-11-30 (UTC).")] = None
    until: Annotated[str | None, typer.Option(help="Only before then.")] = None
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Only those the model was this sure of.")
    ] = None
    max_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Only those it was less sure of than that.")
    ] = None
    sweep: Annotated[str | None, typer.Option(help="Only answers of this sweep, by its id or name.")] = None

    @property
    def filters(self) -> AnswerFilters:
        return {
            "batch_id": self.batch,
            "question": self.question,
            "item": self.item,
            "label": self.label,
            "field": self.field,
            "policy_version": self.policy_version,
            "model": self.model,
            "review": self.reviewed,
            "since": self.since,
            "until": self.until,
            "min_confidence": self.min_confidence,
            "max_confidence": self.max_confidence,
            "sweep": self.sweep,
        }


choosing = sharing(Chosen, "chosen")


@choosing
def count(
    chosen: Chosen,
    by: Annotated[str, typer.Option(help=f"Up to three of {GROUPS}.")] = "label",
    data: ClientDataOption = None,
) -> None:
    """Count labels by group, such as --by question,label.

    In a pipe: a line for each group and no title, the values of the group and then the count, separated by
    tabs.
    """
    groups = [name.strip() for name in by.split(",") if name.strip()]
    with told(), closing(find_client(data)) as api:
        counts = api.count_answers(chosen.filters, group_by=groups)
    rows = [[*(getattr(one, name) for name in groups), str(one.count)] for one in counts]
    _show([*groups, "count"], rows)


@choosing
def list_labels(
    chosen: Chosen,
    last: Annotated[int, typer.Option(min=1, help="How many, the newest.")] = 50,
    data: ClientDataOption = None,
) -> None:
    """Show answers by their labels, the newest first.

    In a pipe: a line for each label and no title, with job, item, question, field, label, review, model,
    policy version and time, separated by tabs.
    """
    rows: list[list[str | None]] = []
    after, more = None, True
    with told(), closing(find_client(data)) as api:
        while more and len(rows) < last:
            page = api.answers(chosen.filters, limit=min(PAGE, last - len(rows)), after=after)
            rows += [_cells(one) for one in page.data]
            after, more = page.last_id, page.has_more
    _show(LIST_TITLES, rows)


@review.command()
def confirm(
    job: JobArgument, field: FieldOption = None, note: NoteOption = None, data: ClientDataOption = None
) -> None:
    """Say that an answer is right."""
    with told(), closing(find_client(data)) as api:
        said = api.review(job, "confirm", field=field, note=note)
    typer.echo(f"{said.job_id} is confirmed.")


@review.command()
def overturn(
    job: JobArgument,
    label: Annotated[str, typer.Option(help='What is right: a text, or true, 3, ["a"] where such belongs.')],
    field: FieldOption = None,
    note: NoteOption = None,
    data: ClientDataOption = None,
) -> None:
    """Say what is right in an answer's place."""
    with told(), closing(find_client(data)) as api:
        said = api.review(job, "overturn", label=label, field=field, note=note)
    typer.echo(f"{said.job_id} is overturned.")


@review.command()
def drop(job: JobArgument, field: FieldOption = None, data: ClientDataOption = None) -> None:
    """Take a review back."""
    with told(), closing(find_client(data)) as api:
        api.delete_review(job, field=field)
    typer.echo(f"The review of {job} is gone.")


@choosing
def export(
    chosen: Chosen,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to, as JSON lines.")],
    data: ClientDataOption = None,
) -> None:
    """Write the reviewed answers to a file, as a calibration set."""
    with told(), closing(find_client(data)) as api:
        api.corrections(output, chosen.filters)


@choosing
def agreement(chosen: Chosen, data: ClientDataOption = None) -> None:
    """Show how often two people said the same of the same answers.

    In a pipe: a line for each question and pair of keys and no title, with question, field, both keys,
    answers, agreed, share and Cohen's kappa, separated by tabs.
    """
    with told(), closing(find_client(data)) as api:
        pairs = api.agreement(chosen.filters)
    _show(AGREEMENT_TITLES, [_pair(one) for one in pairs])


labels.command("count")(count)
labels.command("list")(list_labels)
review.command("export")(export)
review.command("agreement")(agreement)


def _cells(one: LabelledAnswer) -> list[str | None]:
    state = STATES.get(one.review.verdict) if one.review else None
    at = datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    named = [one.job_id, one.item, one.question, one.field, one.label]
    return [*named, state, one.model, one.policy_version, at]


def _pair(one: PairAgreement) -> list[str | None]:
    kappa = None if one.kappa is None else f"{one.kappa:.2f}"
    counts = [str(one.answers), str(one.agreed), f"{one.agreement:.3f}", kappa]
    return [one.question, one.field, *one.key_ids, *counts]


def _show(titles: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
    plain = [[printable(cell or "") for cell in row] for row in rows]
    if sys.stdout.isatty():
        short = [[cell if len(cell) <= CELL else f"{cell[: CELL - 1]}…" for cell in row] for row in plain]
        lines = aligned([titles, *short])
    else:
        lines = ["\t".join(row) for row in plain]
    for line in lines:
        typer.echo(line)
