"""`vqueue cache`: the answers that are kept, and forgetting them."""

from contextlib import closing
from typing import Annotated

import typer

from app.cli.run import told
from app.cli.settings import ClientDataOption, find_client

cache = typer.Typer(name="cache", help="Answers that are kept: shown, forgotten.", no_args_is_help=True)


@cache.command("show")
def show(data: ClientDataOption = None) -> None:
    """Print each model with its kept answers and the seconds of model time that they took."""
    with told(), closing(find_client(data)) as api:
        for stock in api.kept_answers():
            typer.echo(f"{stock.model}\t{stock.answers}\t{stock.model_seconds:g}")


@cache.command("forget")
def forget(
    model: Annotated[str | None, typer.Option(help="Only answers of this model.")] = None,
    question: Annotated[str | None, typer.Option(help="Only answers to this question.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    data: ClientDataOption = None,
) -> None:
    """Forget kept answers: the same questions are asked anew."""
    if everything == bool(model or question):
        raise typer.BadParameter("say --model, --question or both; or --all alone")
    with told(), closing(find_client(data)) as api:
        typer.echo(api.forget_answers(model=model, question=question, all=everything))
