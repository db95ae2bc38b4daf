"""The `vqueue` command: mounts the groups of subcommands, one file each."""

from importlib.metadata import version
from typing import Annotated

import typer

from app.cli import (
    audit,
    batches,
    cache,
    calibrate,
    clusters,
    compare,
    database,
    doctor,
    failures,
    keys,
    labels,
    local,
    processes,
    results,
    run,
    shadows,
    submit,
    sweep,
    tenants,
    usage,
    warm,
)

app = typer.Typer(
    name="vqueue",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold passwords
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"vqueue {version('vqueue')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Answers questions about images in bulk."""


app.command("up")(local.up)
app.command("run")(run.run)
app.command("submit")(submit.submit)
app.command("check")(submit.check)
app.command("watch")(batches.watch)
app.command("cancel")(batches.cancel)
app.command("export")(batches.export)
app.command("doctor")(doctor.doctor)
app.command("migrate")(database.migrate)
app.command("compare")(compare.compare)
app.command("calibrate")(calibrate.calibrate)
app.command("warm")(warm.warm)
app.command("results")(results.results)
app.command("failures")(failures.failures)
app.command("retry")(failures.retry)
app.command("audit")(audit.audit)
app.command("shadows")(shadows.shadows)
app.command("usage")(usage.usage)
app.add_typer(cache.cache)
app.add_typer(keys.keys)
app.add_typer(tenants.tenants)
app.add_typer(labels.labels)
app.add_typer(labels.review)
app.add_typer(sweep.sweep)
app.add_typer(clusters.clusters)
processes.mount(app)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
