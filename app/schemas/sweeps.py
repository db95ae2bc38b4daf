"""Bodies of the sweeps (ours)."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, model_validator

from app.schemas.base import Request, Str
from app.schemas.wishes import CacheWish, CascadeWish, NearDuplicates, Window, check_near

MOST_QUESTIONS, MOST_CHOICES = 100, 1_000
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)

Name = Annotated[Str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Column = Annotated[Str, Field(min_length=1, max_length=512)]
Prefix = Annotated[Str, Field(max_length=1_300, examples=["s3://photos/incoming/"])]


def _question_name(value: str) -> str:
    if not value.isprintable() or value != value.strip() or ":" in value:
        raise ValueError("must be printable, without a colon, and without spaces around it")
    return value


def _year(value: datetime) -> datetime:
    if not EARLIEST <= value < LATEST:
        raise ValueError("must be a time of this century or the next")
    return value


Moment = Annotated[AwareDatetime, AfterValidator(_year), Field(strict=False)]


class SweepQuestion(Request):
    """What is asked of every image. `choices` or `schema` hold the answer to a form."""

    name: Annotated[Str, Field(min_length=1, max_length=64), AfterValidator(_question_name)]
    ask: Annotated[Str, Field(min_length=1)]
    choices: list[Str] | None = Field(default=None, min_length=1, max_length=MOST_CHOICES)
    answer_schema: dict[str, Any] | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.choices is not None and self.answer_schema is not None:
            raise ValueError("has either choices or a schema")
        return self


class BucketSource(Request):
    """All images below a prefix, new versions by their ETag."""

    kind: Literal["bucket"]
    prefix: Prefix
    images_only: bool = Field(default=True, description="only keys that are named like images")


class CatalogSource(Request):
    """A CSV, or JSON Lines, behind a URL."""

    kind: Literal["catalog"]
    url: Annotated[Str, Field(max_length=8192)]
    format: Literal["csv", "jsonl"] | None = Field(default=None, description="else by how it begins")
    id_column: Column = "id"
    image_column: Column = "image"
    version_column: Column | None = Field(
        default=None, description="what changes with the image; else only another reference is a change"
    )


class TableSource(Request):
    """A table or view of a database that the operator has named in VQUEUE_SWEEP_SOURCES."""

    kind: Literal["table"]
    database: Annotated[Str, Field(max_length=128)]
    table: Annotated[Str, Field(max_length=260)]
    id_column: Column = "id"
    image_column: Column = "image"
    version_column: Column | None = None


Source = Annotated[BucketSource | CatalogSource | TableSource, Field(discriminator="kind")]


class Destination(Request):
    """Where each run's answers are written, as files below a prefix."""

    prefix: Prefix
    format: Literal["csv", "parquet", "ndjson"] = "csv"


class BatchWishes(Request):
    """What the batches of its runs are to have besides."""

    priority: Literal["standard", "background"] = "standard"
    cache: CacheWish | None = None
    cascade: CascadeWish | None = None
    near_duplicates: NearDuplicates | None = None

    @model_validator(mode="after")
    def _reads_what_is_kept(self) -> Self:
        check_near(self.near_duplicates, self.cache)
        return self


Questions = Annotated[list[SweepQuestion], Field(min_length=1, max_length=MOST_QUESTIONS)]
Policy = Annotated[Str, Field(min_length=1, max_length=128)]
Cron = Annotated[Str, Field(max_length=256, examples=["30 2 * * *"])]
Alert = Annotated[int, Field(ge=60, le=30 * 86_400)]


def _named_once(questions: list[SweepQuestion] | None) -> None:
    names = [question.name.casefold() for question in questions or ()]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ValueError(f"questions must have names of their own: two are named {twice!r}")


class SweepCreate(Request):
    name: Name
    source: Source
    questions: Questions
    policy_version: Policy = Field(description="of the questions, model and body: another for every change")
    model: Str | None = None
    body: dict[str, Any] = Field(
        default={},
        description="what all requests share: system, detail of images, max_tokens, temperature and so on",
    )
    cron: Cron | None = Field(default=None, description="five fields; without it only by hand")
    zone: Annotated[Str, Field(max_length=64)] = "UTC"
    destination: Destination | None = None
    completion_window: Window = "24h"
    batch: BatchWishes = BatchWishes()
    alert_after_s: Alert = Field(default=3600, description="a run that stands still for so long is told of")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        _named_once(self.questions)
        return self


class SweepUpdate(Request):
    """What is to change; what is left out stays. Null takes away `cron` and `destination`."""

    name: Name | None = None
    source: Source | None = None
    questions: Questions | None = None
    policy_version: Policy | None = None
    model: Str | None = None
    body: dict[str, Any] | None = None
    cron: Cron | None = None
    zone: Annotated[Str, Field(max_length=64)] | None = None
    destination: Destination | None = None
    completion_window: Window | None = None
    batch: BatchWishes | None = None
    alert_after_s: Alert | None = None

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        _named_once(self.questions)
        return self


class SweepBackfill(Request):
    """Due times from one moment to another, both included."""

    start: Moment = Field(alias="from")
    end: Moment = Field(alias="to")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.end < self.start:
            raise ValueError("from must come before to")
        return self


class SweepObject(BaseModel):
    id: str
    object: Literal["sweep"] = "sweep"
    name: str
    source: dict[str, Any]
    questions: list[dict[str, Any]]
    policy_version: str
    model: str
    body: dict[str, Any]
    cron: str | None
    zone: str
    destination: dict[str, Any] | None
    completion_window: str
    batch: dict[str, Any]
    alert_after_s: int
    status: Literal["active", "paused"]
    next_due_at: int | None
    created_at: int
    updated_at: int


class SweepList(BaseModel):
    object: Literal["list"] = "list"
    data: list[SweepObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class SweepDeleted(BaseModel):
    id: str
    object: Literal["sweep"] = "sweep"
    deleted: Literal[True] = True


class ItemCounts(BaseModel):
    """Images as the listing found them, compared with the run before."""

    listed: int
    new: int
    changed: int
    unchanged: int
    deleted: int


class QuestionCounts(BaseModel):
    """Questions that were asked; `differing` answers are other than those before."""

    asked: int
    completed: int
    failed: int
    differing: int


class RunError(BaseModel):
    code: str
    message: str


class RunObject(BaseModel):
    """One going-through of a sweep."""

    id: str
    object: Literal["sweep.run"] = "sweep.run"
    sweep_id: str
    kind: str = Field(description="scheduled, backfill or manual")
    due_at: int
    status: str = Field(
        description="waiting, listing, checking, submitting, running; completed, failed or cancelled"
    )
    stalled: bool
    policy_version: str | None = Field(description="null until it begins")
    batch_ids: list[str]
    item_counts: ItemCounts
    request_counts: QuestionCounts
    error: RunError | None
    created_at: int
    started_at: int | None
    ended_at: int | None


class RunList(BaseModel):
    object: Literal["list"] = "list"
    data: list[RunObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class BackfillObject(BaseModel):
    object: Literal["sweep.backfill"] = "sweep.backfill"
    runs: int = Field(description="made; due times that had theirs are left out")
    run_ids: list[str]


class ChangeObject(BaseModel):
    id: str = Field(description="the custom_id of the job: item and question, a colon between")
    object: Literal["sweep.change"] = "sweep.change"
    item: str
    question: str
    before: str
    after: str


class ChangeList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ChangeObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
