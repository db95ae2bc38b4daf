"""The options of the commands that hand work in: what to ask of which images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.options import sharing
from app.cli.settings import ClientDataOption
from app.runs import wish
from app.runs.inputs import find_input
from app.runs.questions import read_questions
from app.runs.wish import Wish, read_cascade


@dataclass(frozen=True)
class Asked:
    """The options as they are typed."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A .csv, .tsv, .parquet, .jsonl, .zip of images, .txt of image URLs, a folder of images, or "
            "s3://bucket/prefix.",
        ),
    ]
    ask: Annotated[
        list[str] | None,
        typer.Option(
            help="What to ask of each row, as TEXT or NAME=TEXT; {column} is its value. Repeatable."
        ),
    ] = None
    schema: Annotated[
        list[str] | None, typer.Option(help="A file with the answers' JSON schema, as FILE or NAME=FILE.")
    ] = None
    question_column: Annotated[
        str | None, typer.Option(help="The column that has each row's own question, in place of --ask.")
    ] = None
    image_column: Annotated[
        list[str] | None,
        typer.Option(help="The column with image URLs or files; repeated, a row has several images."),
    ] = None
    id_column: Annotated[str | None, typer.Option(help="The column that names the rows; else numbers.")] = (
        None
    )
    image_folder: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Where image files lie; else beside the table."),
    ] = None
    system: Annotated[str | None, typer.Option(help="The system prompt; {column} as in questions.")] = None
    model: Annotated[str | None, typer.Option(help="Which model; else the first that is served.")] = None
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The longest answer.")] = None
    detail: Annotated[Literal["auto", "low"] | None, typer.Option(help="low: 512 x 512 pixels.")] = None
    delimiter: Annotated[str | None, typer.Option(help="Of a CSV; else it is guessed.")] = None
    encoding: Annotated[str | None, typer.Option(help="Of a CSV, such as cp1252; else it is guessed.")] = None
    window: Annotated[str, typer.Option(help="The time that it may take, such as 2h or 7d.")] = "24h"
    strict: Annotated[bool, typer.Option("--strict", help="One bad row fails the whole batch.")] = False
    cache: Annotated[
        Literal["on", "off", "read", "write"] | None,
        typer.Option(help="Use of the answer cache; else as the service has it."),
    ] = None
    cascade: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A file of `vqueue calibrate`: a small model first."),
    ] = None
    near_duplicates: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=7,
            help="Ask about one of the pictures that look the same: their hashes differ in so many bits.",
        ),
    ] = None
    data: ClientDataOption = None

    def wish(self) -> Wish:
        """WrongRun for what does not go together."""
        shared = {"model": self.model, "max_tokens": self.max_tokens, "detail": self.detail}
        found = Wish(
            source=find_input(self.source, delimiter=self.delimiter, encoding=self.encoding),
            questions=read_questions(self.ask or (), self.schema or ()),
            question_column=self.question_column,
            image_columns=self.image_column or (),
            id_column=self.id_column,
            system=self.system,
            shared=tuple((name, value) for name, value in shared.items() if value is not None),
            image_folder=self.image_folder,
            window=self.window,
            strict=self.strict,
            cache=self.cache,
            cascade=None if self.cascade is None else read_cascade(self.cascade),
            near_duplicates=self.near_duplicates,
        )
        wish.check(found)
        return found


asking = sharing(Asked, "asked")
