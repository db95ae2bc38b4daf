"""The `vqueue` command: mounts the groups of subcommands, one file each."""

import typer

from app.cli import database, keys, local, processes

app = typer.Typer(
    name="vqueue",
    help="Answers questions about images in bulk.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold passwords
)
app.command("up")(local.up)
app.command("migrate")(database.migrate)
app.add_typer(keys.keys)
processes.mount(app)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
