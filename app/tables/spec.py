"""What a client says about its table, as it is stored with the batch. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.checks import Json


@dataclass(frozen=True)
class Question:
    """`ask` is a template; answers keep to the JSON `schema`, or are one of the `choices`."""

    name: str
    ask: str
    schema: Mapping[str, Json] | None = None
    choices: Sequence[str] | None = None


@dataclass(frozen=True)
class TableSpec:
    """How jobs are made of a table's rows: one per row and question."""

    image_columns: Sequence[str]
    questions: Sequence[Question]
    id_column: str | None = None
    system: str | None = None
    body: Mapping[str, Json] | None = None
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None

    def line(self, row: int, question: int) -> int:
        """The number of the job that asks a question (from 0) of a row (from 1)."""
        return (row - 1) * len(self.questions) + question + 1

    def row(self, line: int) -> int:
        """The row of a job by its number."""
        return (line - 1) // len(self.questions) + 1


def read_spec(table: Mapping[str, Json]) -> TableSpec:
    """The spec that a checked body's `table` holds; a question column is a question of its own."""
    asked = [
        Question(one["name"], one["ask"], one.get("schema"), one.get("choices"))
        for one in table.get("questions") or ()
    ]
    return TableSpec(
        image_columns=table["image_columns"],
        questions=asked or [Question("answer", f"{{{table['question_column']}}}")],
        **{
            name: table.get(name)
            for name in ("id_column", "system", "body", "format", "delimiter", "encoding")
        },
    )
