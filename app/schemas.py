"""Bodies of requests and responses, as OpenAI's API has them; ours are marked so."""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from app.cascade import MOST_STEPS
from app.looks import MOST_DISTANCE
from app.schemas_report import Report
from app.schemas_tables import Str, Table
from app.warm import WARM
from app.windows import MONTH_S, window_seconds

Share = Annotated[float, Field(ge=0, le=1)]
NEAR_DUPLICATES = "vqueue_near_duplicates"


def _window(value: str) -> str:
    window_seconds(value)
    return value


def _wishes(value: dict[str, str]) -> dict[str, str]:
    """Metadata that we read: a wish that is misspelt would go unheard."""
    for name in (NEAR_DUPLICATES, WARM):
        if (wish := value.get(name, "off")) not in ("on", "off"):
            raise ValueError(f"{name} must be 'on' or 'off', not {wish!r}")
    return value


Metadata = Annotated[
    dict[Annotated[Str, Field(max_length=64)], Annotated[Str, Field(max_length=512)]],
    Field(max_length=16),
    AfterValidator(_wishes),
]


class Request(BaseModel):
    """A parameter that we do not know is refused: ignoring it would do something else than was asked."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ExpiresAfter(Request):
    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=MONTH_S)


class FailureBrake(Request):
    """(ours) Stop the batch when `share` of its requests, of at least `after`, has failed; share 0 never."""

    share: float = Field(ge=0, le=1)
    after: int | None = Field(default=None, ge=1, le=10**9)


class CascadeWish(Request):
    """(ours) `steps`, of `vqueue calibrate`, are rising pairs: a probability, the share of right ones."""

    model: Annotated[Str, Field(min_length=1)]
    threshold: float = Field(ge=0, le=1)
    steps: list[Annotated[list[Share], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, max_length=MOST_STEPS
    )

    @field_validator("steps")
    @classmethod
    def _rise(cls, steps: list[list[float]]) -> list[list[float]]:
        if any(a >= b for (a, _), (b, _) in itertools.pairwise(steps)):
            raise ValueError("the pairs must rise by their first number")
        return steps


CacheWish = Literal["on", "off", "read", "write"]


class NearDuplicates(Request):
    """(ours) The answer about one picture stands in for others that look the same."""

    distance: int = Field(
        default=4, ge=0, le=MOST_DISTANCE, description="bits of 64 in which their hashes may differ"
    )


class BatchCreate(Request):
    input_file_id: Annotated[Str, Field(max_length=1_300)]  # ours: or s3://bucket/prefix
    endpoint: Literal["/v1/chat/completions", "/v1/responses"]
    completion_window: Annotated[str, AfterValidator(_window)]
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
        if self.near_duplicates is not None and self.cache in ("off", "write"):
            raise ValueError(f"near_duplicates takes kept answers, which cache '{self.cache}' forbids")
        return self


class BatchRetry(Request):
    """(ours) Which jobs to try again, and what is to be different from the old batch."""

    states: list[Literal["failed", "expired", "cancelled"]] = Field(default=["failed"], min_length=1)
    completion_window: Annotated[str, AfterValidator(_window)] | None = None
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    priority: Literal["standard", "background"] | None = None
    failure_brake: FailureBrake | None = None


class JobCreate(Request):
    """One question about some images (ours). Parameters are checked as in a batch, bounds included."""

    question: str = Field(min_length=1)
    image: str | None = Field(default=None, description="https:// or data: URL, s3:// key, or a file id")
    images: list[str] | None = None
    system: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repetition_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = Field(default=None, description="as in a chat completion")
    structured_outputs: dict[str, Any] | None = Field(default=None, description="as vLLM has it")
    guided_choice: list[str] | None = Field(default=None, description="the answer is one of these texts")
    deadline_s: float | None = Field(
        default=None, gt=0, le=MONTH_S, description="seconds after which an unanswered job expires"
    )
    priority: Literal["interactive", "standard", "background"] = Field(
        default="standard", description="all of one class go before any of the next"
    )
    cache: CacheWish | None = Field(
        default=None, description="whether the answer is taken from the answer cache, and kept in it"
    )


class ChatCreate(BaseModel):
    """A chat completion, checked field by field as the body of a batch's line, but for `stream`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: Any = Field(default=None, description="one of GET /v1/models")
    messages: Any = Field(default=None, description="as in a batch's lines")
    stream: Any = Field(default=None, description="true: server-sent events")
    stream_options: Any = Field(default=None, description='{"include_usage": true} adds the usage')


class ResponseCreate(BaseModel):
    """A request of the Responses API, checked field by field as the body of a batch's line."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: Any = Field(default=None, description="one of GET /v1/models")
    input: Any = Field(default=None, description="a text, or a list of messages")
    instructions: Any = Field(default=None, description="the system's message")


class FileObject(BaseModel):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    status_details: None = None


class FileDeleted(BaseModel):
    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class FileList(BaseModel):
    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


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


class ResultError(BaseModel):
    code: str
    message: str


class ResultResponse(BaseModel):
    status_code: int
    request_id: str
    body: dict[str, Any]


class ResultObject(BaseModel):
    """What a line of the output or error file says; `seq` and `line` are ours."""

    id: str
    custom_id: str | None
    response: ResultResponse | None
    error: ResultError | None
    seq: int = Field(description="its number in the order in which the batch's jobs ended, from 1")
    line: int = Field(description="the line of the input file")


class ResultList(BaseModel):
    """Ours. There is no more to come where `has_more` is false and `ended` true."""

    object: Literal["list"] = "list"
    data: list[ResultObject]
    first_id: str | None
    last_id: str | None
    last_seq: int = Field(description="the `after` of the next page")
    has_more: bool
    ended: bool = Field(description="whether all jobs of the batch have ended")
    batch_status: str


class TokenDetails(BaseModel):
    cached_tokens: int


class JobUsage(BaseModel):
    prompt_tokens: int
    prompt_tokens_details: TokenDetails
    completion_tokens: int
    total_tokens: int


class JobAnswer(BaseModel):
    text: str
    finish_reason: str
    usage: JobUsage
    revision: str
    logprobs: Mapping[str, Any] | None
    notes: list[str]
    reasoning: str | None = None


class JobError(BaseModel):
    code: str
    message: str


class JobObject(BaseModel):
    id: str
    object: Literal["job"] = "job"
    status: str
    model: str
    attempt: int
    created_at: int
    started_at: int | None
    finished_at: int | None
    answer: JobAnswer | None
    error: JobError | None


class JobDeleted(BaseModel):
    id: str
    object: Literal["job"] = "job"
    deleted: Literal[True] = True


class ModelObject(BaseModel):
    """`root` (ours, as vLLM has it) is the model that answers: an alias differs from it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "vqueue"
    root: str


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelObject]
