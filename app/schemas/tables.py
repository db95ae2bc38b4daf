"""A table as the input of a batch (ours): which columns hold what, and what is asked of every row."""

import codecs
import string
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from app.schemas.base import Request, Str

MOST_QUESTIONS, MOST_CHOICES = 100, 1_000
MOST_IMAGE_COLUMNS = 16
# By the codec's own name; others are no encodings of text files.
ENCODINGS = frozenset(
    {
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "mac-roman", "koi8-r"),
        *("shift_jis", "cp932", "euc_jp", "gbk", "gb18030", "big5", "cp950", "euc_kr", "cp949"),
        *(f"cp{page}" for page in (437, 850, 852, 866, *range(1250, 1259))),
        *(f"iso8859-{part}" for part in range(1, 17) if part != 12),
    }
)


def _encoding(value: str) -> str:
    try:
        name = codecs.lookup(value).name
    except (LookupError, ValueError):
        name = ""
    if name not in ENCODINGS:
        raise ValueError("must be an encoding such as 'utf-8', 'cp1252' or 'utf-16'")
    return name


def _delimiter(value: str) -> str:
    if value in string.ascii_letters + string.digits + '"\r\n\0 ' or not value.isascii():
        raise ValueError("must be one character such as ',', ';', '|' or a tab")
    return value


def _without_braces(value: str) -> str:
    """A question column is asked as the template {column}."""
    if "{" in value or "}" in value:
        raise ValueError("must not have braces in its name: rename the column")
    return value


def _question_name(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("must be printable, without spaces around it")
    if ":" in value:
        raise ValueError("must have no colon: in a custom_id it stands between a row's id and the name")
    return value


Column = Annotated[Str, Field(min_length=1, max_length=512)]


class _Part(Request):
    model_config = ConfigDict(populate_by_name=True)


class Question(_Part):
    """What is asked of each row; `{column}` in `ask` stands for the row's value, `{{` for a brace."""

    name: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_question_name)] = Field(
        default="answer", description="the column that the answers get; with several questions also in ids"
    )
    ask: Annotated[Str, Field(min_length=1)] = Field(examples=["What colour is the {title}?"])
    answer_schema: dict[str, Any] | None = Field(
        default=None, alias="schema", description="a JSON schema that the answers keep to"
    )
    choices: list[Str] | None = Field(
        default=None, min_length=1, max_length=MOST_CHOICES, description="each answer is one of these texts"
    )

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.choices is not None and self.answer_schema is not None:
            raise ValueError("has either choices or a schema")
        return self


class Table(_Part):
    """How jobs are made of a table's rows: one per row and question."""

    image_columns: list[Column] = Field(
        default=["image"], min_length=1, max_length=MOST_IMAGE_COLUMNS, description="empty cells are left out"
    )
    id_column: Column | None = Field(default=None, description="else a row's id is its number, from 1")
    questions: list[Question] = Field(default=[], max_length=MOST_QUESTIONS)
    question_column: Annotated[Column, AfterValidator(_without_braces)] | None = Field(
        default=None, description="in place of `questions`"
    )
    system: Str | None = None
    body: dict[str, Any] = Field(
        default={},
        description="what all requests share: model, max_tokens, temperature and so on; `detail` of images",
        examples=[{"max_tokens": 64, "temperature": 0}],
    )
    format: Literal["csv", "tsv", "parquet", "zip", "txt"] | None = Field(
        default=None, description="else by the file's name"
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_delimiter)] | None = None
    encoding: Annotated[str, Field(max_length=32), AfterValidator(_encoding)] | None = None

    @model_validator(mode="after")
    def _check_questions(self) -> Self:
        if bool(self.questions) == (self.question_column is not None):
            raise ValueError("needs either questions or question_column")
        names = [question.name.casefold() for question in self.questions]
        if len(set(names)) < len(names):
            raise ValueError("questions must have names of their own")
        return self

    def stored(self) -> dict[str, Any]:
        """As a batch keeps it. Choices are left out where there are none: so were they before there were any,
        and the same request is to stay the same."""
        table = self.model_dump(by_alias=True)
        for question in table["questions"]:
            if question["choices"] is None:
                del question["choices"]
        return table

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if len(set(self.image_columns)) < len(self.image_columns):
            raise ValueError("image_columns names a column twice")
        return self
