"""Bodies about batches, as OpenAI's API has them; ours are marked so."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from app.report import Report
from app.schemas.base import Request, Str
from app.schemas.tables import Table
from app.schemas.wishes import (
    CacheWish,
    CascadeWish,
    ExpiresAfter,
    FailureBrake,
    Metadata,
    NearDuplicates,
    Window,
    check_near,
)


class BatchCreate(Request):
    input_file_id: Annotated[Str, Field(max_length=1_300)]  # ours: or s3://bucket/prefix
    endpoint: Literal["/v1/chat/completions", "/v1/responses"]
    completion_window: Window
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    priority: Literal["standard", "background"] = Field(
        default="standard", description="(ours) background runs only what nobody else needs"
    )
    failure_brake: FailureBrake | None = None
    dry_run: bool = Field(
        default=False, description="(ours) read and check everything, run nothing, and report"
    )
    strict: bool = Field(
        default=False, description="(ours) one line that is no request, or fails, ends the whole batch"
    )
    table: Table | None = Field(default=None, description="(ours) the input file is a table, read like this")
    cache: CacheWish | None = Field(
        default=None, description="(ours) whether answers are taken from the answer cache, and kept in it"
    )
    cascade: CascadeWish | None = Field(
        default=None, description="(ours) ask a small model first, and the requests' own where that is unsure"
    )
    near_duplicates: NearDuplicates | None = Field(
        default=None, description="(ours) ask about one of the pictures that look the same; needs the cache"
    )

    @model_validator(mode="after")
    def _reads_what_is_kept(self) -> Self:
        check_near(self.near_duplicates, self.cache)
        return self


class BatchRetry(Request):
    """(ours) Which jobs to try again, and what is to be different from the old batch."""

    states: list[Literal["failed", "expired", "cancelled"]] = Field(default=["failed"], min_length=1)
    completion_window: Window | None = None
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    priority: Literal["standard", "background"] | None = None
    failure_brake: FailureBrake | None = None


class BatchError(BaseModel):
    code: str
    message: str
    param: str | None
    line: int | None


class BatchErrors(BaseModel):
    object: Literal["list"] = "list"
    data: list[BatchError]


class RequestCounts(BaseModel):
    total: int
    completed: int
    failed: int


class InputDetails(BaseModel):
    cached_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int = 0


class BatchUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ErrorCount(BaseModel):
    """(ours) How many jobs failed with a code; line and message are those of the first that was noted."""

    code: str
    count: int
    line: int | None
    message: str
    type: str = Field(description="server_error: our own fault, else the request's")
    retryable: bool = Field(description="whether the same request may well succeed another time")


class ErrorList(BaseModel):
    """(ours)"""

    object: Literal["list"] = "list"
    data: list[ErrorCount]
    has_more: Literal[False] = False


class CacheUse(BaseModel):
    """(ours) What the answer cache has spared a batch."""

    mode: str
    answered: int = Field(description="jobs that were given an answer which was kept")
    model_seconds_saved: float = Field(description="what those answers once took of a model's time")


class CascadeUse(BaseModel):
    """(ours) What a cascade's two models did. `agreed`: escalated jobs that both answered with one text."""

    model: str = Field(description="the one that is asked first")
    threshold: float
    escalated: int
    agreed: int
    model_seconds: float = Field(description="of the first model; the others are the large one's")
    model_seconds_saved: float | None = Field(
        description="against asking the large one everything, at its pace so far; null before it has answered"
    )


class NearUse(BaseModel):
    """(ours) What the answers about pictures that look the same have spared a batch."""

    distance: int
    answered: int = Field(description="jobs that were given such an answer; all of them say so")


class BatchExtras(BaseModel):
    """(ours)"""

    priority: str
    retry_of: str | None = Field(description="the batch whose jobs these are, once more")
    dry_run: bool
    report: Report | None = Field(description="of a dry run, once it has ended")
    pace: float | None = Field(description="jobs that end per second, as measured lately")
    estimated_completion_at: int | None
    errors_by_code: list[ErrorCount] = Field(description="the commonest first, at most 5")
    cache: CacheUse
    cascade: CascadeUse | None
    model_seconds: float = Field(description="what its answers took of a model's time")
    near_duplicates: NearUse | None = Field(default=None, description="of a batch that lets them stand in")
    waiting_for: Literal["image_quota"] | None = Field(
        default=None, description="the images of the day are spent: others come after midnight UTC"
    )


class BatchObject(BaseModel):
    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None
    vqueue: BatchExtras


class BatchDeleted(BaseModel):
    id: str
    object: Literal["batch"] = "batch"
    deleted: Literal[True] = True


class BatchList(BaseModel):
    object: Literal["list"] = "list"
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
