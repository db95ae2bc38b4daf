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


class NearDuplicates(TypedDict):
    """Bits of 64 in which the hashes of two pictures may differ, 0 to 7."""

    distance: int


class BatchWishes(TypedDict, total=False):
    """What the batches of a sweep's runs are to have besides."""

    priority: Priority
    cache: CacheMode | None
    cascade: Cascade | None
    near_duplicates: NearDuplicates | None


class SweepSource(TypedDict):
    """`kind` is bucket (with `prefix`), catalog (with `url`) or table (with `database` and `table`)."""

    kind: Literal["bucket", "catalog", "table"]
    prefix: NotRequired[str]
    images_only: NotRequired[bool]
    url: NotRequired[str]
    format: NotRequired[Literal["csv", "jsonl"] | None]
    database: NotRequired[str]
    table: NotRequired[str]
    id_column: NotRequired[str]
    image_column: NotRequired[str]
    version_column: NotRequired[str | None]


class SweepQuestion(TypedDict):
    """What is asked of every image; `choices` or `schema` hold the answer to a form."""

    name: str
    ask: str
    choices: NotRequired[list[str] | None]
    schema: NotRequired[dict[str, Any] | None]


class SweepChanges(TypedDict, total=False):
    """What is to change of a sweep; what is left out stays."""

    name: str
    source: SweepSource
    questions: list[SweepQuestion]
    policy_version: str
    model: str
    body: dict[str, Any]
    cron: str | None
    zone: str
    destination: dict[str, str] | None
    completion_window: str
    batch: BatchWishes
    alert_after_s: int


class AnswerFilters(TypedDict, total=False):
    """Which labelled answers; a time is a datetime, Unix seconds or ISO 8601, and `until` not included.

    `sweep` is an id or a name. Confidences are from 0 to 1, `max_confidence` not included; answers without
    one are left out by either.
    """

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
    min_confidence: float | None
    max_confidence: float | None
    sweep: str | None
