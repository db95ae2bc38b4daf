"""`vqueue clusters`: images that look the same."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import typer

from app.cli.run import told
from app.cli.settings import ClientDataOption, find_client
from vqueue import Client, ImageCluster

PAGE = 100

clusters = typer.Typer(
    name="clusters", help="Images that look the same: compared, listed, found.", no_args_is_help=True
)


@clusters.command()
def look(data: ClientDataOption = None) -> None:
    """Have all stored images compared, and print how many are from now on."""
    with told(), closing(find_client(data)) as api:
        typer.echo(f"{api.look_at_images()} images")


@clusters.command("list")
def list_clusters(
    most: Annotated[int | None, typer.Option(min=1, help="So many at most; else all.")] = None,
    data: ClientDataOption = None,
) -> None:
    """Print the clusters of two images or more, a JSON line each."""
    with told(), closing(find_client(data)) as api:
        for number, one in enumerate(_all(api)):
            if number == most:
                return
            typer.echo(json.dumps(one.model_dump(), ensure_ascii=False))


@clusters.command()
def near(
    image: Annotated[str, typer.Argument(metavar="HASH", help="The SHA-256 of the image's bytes.")],
    distance: Annotated[int, typer.Option(min=0, max=7, help="Bits of 64 that may differ.")] = 4,
    data: ClientDataOption = None,
) -> None:
    """Print the images that look like one of them: distance, hash and reference, by tabs."""
    with told(), closing(find_client(data)) as api:
        found = api.near_images(image, distance=distance)
        if not found.hashed or found.error:
            typer.echo(f"it cannot be compared: {found.error or 'nobody has looked at it yet'}", err=True)
        for one in found.data:
            typer.echo(f"{one.distance}\t{one.content_hash}\t{one.reference or '-'}")


def _all(api: Client) -> Iterator[ImageCluster]:
    after: str | None = None
    while True:
        page = api.image_clusters(limit=PAGE, after=after)
        yield from page.data
        if not page.has_more:
            return
        after = page.last_id
