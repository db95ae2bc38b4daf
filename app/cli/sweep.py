"""`vqueue sweep`: sources gone through again and again, by the API."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.cli.keys import aligned, printable
from app.cli.run import told
from app.cli.settings import ClientDataOption, find_client
from app.runs.base import WrongRun
from app.runs.questions import NAMED, read_questions
from app.runs.wish import read_cascade
from vqueue import Client, SweepChanges, VqueueError
from vqueue.calls import Call

PAGE = 100
SWEEP_TITLES = ("id", "name", "status", "policy", "next due", "cron", "zone")
RUN_TITLES = (
    "id",
    "due",
    "kind",
    "status",
    "listed",
    "new",
    "changed",
    "deleted",
    "asked",
    "failed",
    "differing",
    "error",
)

Found = dict[str, Any]  # JSON as the API has it
SweepArgument = Annotated[str, typer.Argument(metavar="SWEEP", help="Its id or name.")]

PriorityOption = Annotated[
    Literal["standard", "background"] | None, typer.Option(help="Of the batches of its runs.")
]
CacheOption = Annotated[
    Literal["on", "off", "read", "write"] | None, typer.Option(help="Use of the answer cache.")
]
CascadeOption = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="A file of `vqueue calibrate`: a small model first."),
]
NearOption = Annotated[
    int | None,
    typer.Option(min=0, max=7, help="Ask about one of the pictures whose hashes differ in so many bits."),
]
ChoicesOption = Annotated[
    list[str] | None, typer.Option(help="The answers there are, as NAME=yes,no. Repeatable.")
]
SchemaOption = Annotated[
    list[str] | None, typer.Option(help="A file with the answers' JSON schema, as FILE or NAME=FILE.")
]

sweep = typer.Typer(
    name="sweep", help="Go through a source again and again, by the clock.", no_args_is_help=True
)


@sweep.command()
def create(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes.")],
    source: Annotated[
        str,
        typer.Argument(
            help="s3://bucket/prefix, the https:// URL of a catalog (CSV or JSON Lines), or DATABASE/TABLE."
        ),
    ],
    policy: Annotated[str, typer.Option(help="The version of the questions.")],
    ask: Annotated[list[str], typer.Option(help="What to ask of each image, as TEXT or NAME=TEXT.")],
    choices: ChoicesOption = None,
    schema: SchemaOption = None,
    cron: Annotated[str | None, typer.Option(help="Five fields, such as '30 2 * * *'.")] = None,
    zone: Annotated[str, typer.Option(help="The time zone of --cron.")] = "UTC",
    model: Annotated[str | None, typer.Option(help="Which model; else the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The longest answer.")] = None,
    id_column: Annotated[str, typer.Option(help="Of a catalog or table.")] = "id",
    image_column: Annotated[str, typer.Option(help="Of a catalog or table.")] = "image",
    version_column: Annotated[
        str | None, typer.Option(help="Of a catalog or table: what changes with the image.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="s3://bucket/prefix that answers are written to.")] = None,
    window: Annotated[str, typer.Option(help="The time that a run may take.")] = "24h",
    priority: PriorityOption = None,
    cache: CacheOption = None,
    cascade: CascadeOption = None,
    near_duplicates: NearOption = None,
    data: ClientDataOption = None,
) -> None:
    """Make a sweep, and print its id."""
    columns = {"id_column": id_column, "image_column": image_column, "version_column": version_column}
    body = {"system": system, "max_tokens": max_tokens}
    with told():
        wish: Found = {
            "name": name,
            "source": _source(source, columns),
            "questions": _with_choices(read_questions(ask, schema or ()), choices or ()),
            "policy_version": policy,
            "model": model,
            "body": {key: value for key, value in body.items() if value is not None},
            "cron": cron,
            "zone": zone,
            "destination": {"prefix": to} if to else None,
            "completion_window": window,
            "batch": _batch(priority, cache, cascade, near_duplicates),
        }
        with closing(find_client(data)) as api:
            typer.echo(api.create_sweep(**wish).id)


@sweep.command()
def update(
    sweep: SweepArgument,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    policy: Annotated[str | None, typer.Option(help="The version of the questions from now on.")] = None,
    ask: Annotated[list[str] | None, typer.Option(help="All questions anew, as TEXT or NAME=TEXT.")] = None,
    choices: ChoicesOption = None,
    schema: SchemaOption = None,
    cron: Annotated[str | None, typer.Option(help="Five fields; '' for runs by hand only.")] = None,
    zone: Annotated[str | None, typer.Option(help="The time zone of the cron line.")] = None,
    model: Annotated[str | None, typer.Option(help="Another model.")] = None,
    system: Annotated[str | None, typer.Option(help="The system prompt; '' for none.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The longest answer.")] = None,
    to: Annotated[str | None, typer.Option(help="s3://bucket/prefix; '' to write answers nowhere.")] = None,
    window: Annotated[str | None, typer.Option(help="The time that a run may take.")] = None,
    priority: PriorityOption = None,
    cache: CacheOption = None,
    cascade: CascadeOption = None,
    near_duplicates: NearOption = None,
    data: ClientDataOption = None,
) -> None:
    """Change what is given, and print the sweep as JSON. What changes answers needs another --policy."""
    plain = {
        "name": name,
        "policy_version": policy,
        "zone": zone,
        "model": model,
        "completion_window": window,
    }
    changes: Found = {key: value for key, value in plain.items() if value is not None}
    body = {"system": system, "max_tokens": max_tokens}
    with told(), closing(find_client(data)) as api:
        found = _find(api, sweep)
        if ask:
            changes["questions"] = _with_choices(read_questions(ask, schema or ()), choices or ())
        elif choices or schema:
            raise WrongRun("--choices and --schema belong to questions: give all of them by --ask")
        if cron is not None:
            changes["cron"] = cron or None
        if to is not None:
            changes["destination"] = {"prefix": to} if to else None
        if given := {key: value for key, value in body.items() if value is not None}:
            changes["body"] = {key: value for key, value in {**found["body"], **given}.items() if value != ""}
        if wishes := _batch(priority, cache, cascade, near_duplicates):
            changes["batch"] = {**found["batch"], **wishes}
        changed = api.update_sweep(found["id"], SweepChanges(**changes))
        typer.echo(json.dumps(changed.model_dump(), indent=2, ensure_ascii=False))


@sweep.command("list")
def list_sweeps(data: ClientDataOption = None) -> None:
    """Show all sweeps. In a pipe: a line each and no title, by tabs."""
    with told(), closing(find_client(data)) as api:
        _table(SWEEP_TITLES, [_sweep_cells(one) for one in _all(api, "/sweeps")])


@sweep.command()
def show(sweep: SweepArgument, data: ClientDataOption = None) -> None:
    """Show a sweep as JSON, and its newest runs."""
    with told(), closing(find_client(data)) as api:
        found = _find(api, sweep)
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        runs = _send(api, "GET", f"/sweeps/{found['id']}/runs")["data"]
        _table(RUN_TITLES, [_run_cells(one) for one in runs])


@sweep.command()
def run(sweep: SweepArgument, data: ClientDataOption = None) -> None:
    """Run it now, and print the run's id."""
    with told(), closing(find_client(data)) as api:
        typer.echo(api.run_sweep(_find(api, sweep)["id"]).id)


@sweep.command()
def pause(sweep: SweepArgument, data: ClientDataOption = None) -> None:
    """Begin no more runs by the clock."""
    _switch(sweep, "pause", data)


@sweep.command()
def resume(sweep: SweepArgument, data: ClientDataOption = None) -> None:
    """Go on with the next due time."""
    _switch(sweep, "resume", data)


@sweep.command()
def backfill(
    sweep: SweepArgument,
    start: Annotated[datetime, typer.Option("--from", help="In UTC.")],
    end: Annotated[datetime, typer.Option("--to", help="In UTC.")],
    data: ClientDataOption = None,
) -> None:
    """Make a run for each past due time of a range that has none; print how many."""
    span = {"from": _utc(start), "to": _utc(end)}
    with told(), closing(find_client(data)) as api:
        made = _send(api, "POST", f"/sweeps/{_find(api, sweep)['id']}/backfill", span)
        typer.echo(f"{made['runs']} runs")


@sweep.command()
def diff(
    sweep: SweepArgument,
    run: Annotated[str | None, typer.Argument(help="The run's id; the newest without it.")] = None,
    data: ClientDataOption = None,
) -> None:
    """Print the answers of a run that are other than those before it, as JSON lines."""
    with told(), closing(find_client(data)) as api:
        path = f"/sweeps/{_find(api, sweep)['id']}/runs"
        if run is None:
            newest = _send(api, "GET", path, params={"limit": 1})["data"]
            if not newest:
                raise WrongRun("the sweep has no runs yet")
            run = newest[0]["id"]
        for change in _all(api, f"{path}/{run}/diff"):
            said = {name: change[name] for name in ("item", "question", "before", "after")}
            typer.echo(json.dumps(said, ensure_ascii=False))


@sweep.command()
def delete(sweep: SweepArgument, data: ClientDataOption = None) -> None:
    """Delete a sweep with its runs; their batches stay, open ones are cancelled."""
    with told(), closing(find_client(data)) as api:
        typer.echo(_send(api, "DELETE", f"/sweeps/{_find(api, sweep)['id']}")["id"])


def _switch(name: str, verb: str, data: Path | None) -> None:
    with told(), closing(find_client(data)) as api:
        typer.echo(_send(api, "POST", f"/sweeps/{_find(api, name)['id']}/{verb}")["status"])


def _source(given: str, columns: Mapping[str, str | None]) -> Found:
    if given.startswith("s3://"):
        return {"kind": "bucket", "prefix": given}
    if "://" in given:
        return {"kind": "catalog", "url": given, **columns}
    database, slash, table = given.partition("/")
    if not slash:
        raise WrongRun(f"{given}: a source is s3://bucket/prefix, an https:// URL, or DATABASE/TABLE")
    return {"kind": "table", "database": database, "table": table, **columns}


def _batch(priority: str | None, cache: str | None, cascade: Path | None, near: int | None) -> Found:
    given: Found = {
        "priority": priority,
        "cache": cache,
        "cascade": None if cascade is None else read_cascade(cascade),
        "near_duplicates": None if near is None else {"distance": near},
    }
    return {name: value for name, value in given.items() if value is not None}


def _with_choices(questions: Sequence[Mapping[str, Any]], choices: Sequence[str]) -> list[Found]:
    asked = [dict(one) for one in questions]
    for given in choices:
        found = NAMED.fullmatch(given)
        named = [one for one in asked if found and one["name"] == found[1]]
        if not found or not named:
            raise WrongRun(f"--choices {given}: write NAME=yes,no with the name of a question")
        named[0]["choices"] = [one.strip() for one in found[2].split(",")]
    return asked


def _send(
    api: Client,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    params: Mapping[str, str | int] | None = None,
) -> Found:
    return api.send(Call(method, path, lambda answer: answer.json(), params=params or {}, json=body))


def _all(api: Client, path: str) -> Iterator[Found]:
    after: dict[str, str | int] = {}
    while True:
        page = _send(api, "GET", path, params={"limit": PAGE, **after})
        yield from page["data"]
        if not page["has_more"]:
            return
        after = {"after": page["last_id"]}


def _find(api: Client, name: str) -> Found:
    """By id, else by name."""
    if name.startswith("sweep_"):
        return _send(api, "GET", f"/sweeps/{name}")
    found = next((one for one in _all(api, "/sweeps") if one["name"] == name), None)
    if found is None:
        raise VqueueError(f"There is no sweep named {name!r}.")
    return found


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in aligned([titles, *rows]) if sys.stdout.isatty() else map("\t".join, rows):
        typer.echo(line)


def _sweep_cells(one: Found) -> list[str]:
    names = ("id", "name", "status", "policy_version")
    return [
        *(printable(one[name]) for name in names),
        _moment(one["next_due_at"]),
        one["cron"] or "-",
        one["zone"],
    ]


def _run_cells(one: Found) -> list[str]:
    items, requests = one["item_counts"], one["request_counts"]
    counts = [items[name] for name in ("listed", "new", "changed", "deleted")]
    counts += [requests[name] for name in ("asked", "failed", "differing")]
    error = printable(f"{one['error']['code']}: {one['error']['message']}") if one["error"] else "-"
    return [one["id"], _moment(one["due_at"]), one["kind"], one["status"], *map(str, counts), error]


def _moment(unix: int | None) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M") if unix else "-"


def _utc(moment: datetime) -> str:
    return moment.replace(tzinfo=moment.tzinfo or UTC).isoformat()
