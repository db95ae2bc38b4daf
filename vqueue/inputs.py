"""The shapes of what a caller hands over: tables with their questions, and the failure brake."""

from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

States = Literal["failed", "expired", "cancelled"]
CacheMode = Literal["on", "off", "read", "write"]
Priority = Literal["standard", "background"]
ExportFormat = Literal["csv", "parquet", "ndjson", "jsonl"]
ExportRows = Literal["all", "completed", "failed"]
Purpose = Literal["batch", "vision", "user_data"]
Verdict = Literal["confirm", "overturn"]
ReviewState = Literal["none", "confirmed", "overturned"]


class Question(TypedDict):
    """`{column}` in `ask` is the row's value; `schema` is a JSON schema that the answer has to obey."""

    name: str
    ask: str
    schema: NotRequired[dict[str, Any] | None]


class Table(TypedDict):
    """How the rows of a table become questions; docs/tables.md says what each field does."""

    image_columns: list[str]
    questions: NotRequired[list[Question]]
    question_column: NotRequired[str | None]
    id_column: NotRequired[str | None]
    system: NotRequired[str | None]
    body: NotRequired[dict[str, Any]]
    format: NotRequired[str | None]
    delimiter: NotRequired[str | None]
    encoding: NotRequired[str | None]


class FailureBrake(TypedDict):
    """Stop a batch once this share of its requests, of at least `after`, has failed."""

    share: float
    after: NotRequired[int | None]


class Cascade(TypedDict):
    """Ask `model` first; `threshold` and `steps` come from `vqueue calibrate`."""

    model: str
    threshold: float
    steps: NotRequired[list[list[float]]]


class AnswerFilters(TypedDict, total=False):
    """Which labelled answers; a time is a datetime, Unix seconds or ISO 8601, and `until` not included."""

    batch_id: str | None
    question: str | None
    item: str | None
    label: str | None
    field: str | None
    policy_version: str | None
    model: str | None
    review: ReviewState | None
    since: datetime | int | str | None
    until: datetime | int | str | None
