"""The objects that the API answers with. Fields that this version does not know are kept."""

from typing import Any

from pydantic import BaseModel, ConfigDict

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


class Answered(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Key(Answered):
    """`scopes` are some of read, write, chat and admin, or * for all."""

    id: str
    name: str = ""
    scopes: list[str] = []

    def allows(self, scope: str) -> bool:
        return bool({"*", scope} & {*self.scopes})


class File(Answered):
    id: str
    bytes: int = 0
    filename: str = ""
    purpose: str = ""
    created_at: int = 0
    expires_at: int | None = None


class RequestCounts(Answered):
    total: int = 0
    completed: int = 0
    failed: int = 0


class LineError(Answered):
    """Why a batch's file did not pass; `line` and `param` say where, if it is in one place."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        places = [f"line {self.line}" if self.line else "", self.param or ""]
        where = ", ".join(place for place in places if place)
        return f"{where + ': ' if where else ''}{self.code}: {self.message}"


class LineErrors(Answered):
    data: list[LineError] = []


class ErrorCount(Answered):
    """How many jobs failed of a code; line and message are those of the first that was noted."""

    code: str
    count: int
    line: int | None = None
    message: str = ""
    type: str = "invalid_request_error"
    retryable: bool = False


class CacheUse(Answered):
    """What the answer cache has spared a batch."""

    mode: str = "off"
    answered: int = 0
    model_seconds_saved: float = 0.0


class NearUse(Answered):
    """What answers about pictures that look the same have spared a batch."""

    distance: int
    answered: int = 0


class KeptModel(Answered):
    """How many answers of a model are kept, and what they took of its time."""

    model: str
    answers: int
    model_seconds: float


class CascadeUse(Answered):
    """What a cascade's two models did; `model` is the one that is asked first."""

    model: str = ""
    threshold: float = 0.0
    escalated: int = 0
    agreed: int = 0
    model_seconds: float = 0.0
    model_seconds_saved: float | None = None


class BatchExtras(Answered):
    """What vqueue tells of a batch beyond OpenAI's fields."""

    priority: str = "standard"
    retry_of: str | None = None
    pace: float | None = None
    estimated_completion_at: int | None = None
    errors_by_code: list[ErrorCount] = []
    waiting_for: str | None = None
    cache: CacheUse = CacheUse()
    cascade: CascadeUse | None = None
    near_duplicates: NearUse | None = None
    model_seconds: float = 0.0
    report: dict[str, Any] | None = None


class Batch(Answered):
    id: str
    status: str
    input_file_id: str = ""
    endpoint: str = ""
    completion_window: str = ""
    created_at: int = 0
    expires_at: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: RequestCounts = RequestCounts()
    errors: LineErrors | None = None
    metadata: dict[str, str] | None = None
    vqueue: BatchExtras = BatchExtras()

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def reasons(self) -> list[LineError]:
        """Why it failed as a whole."""
        return self.errors.data if self.errors else []

    @property
    def unread(self) -> bool:
        """Whether its file did not pass: nothing of it ran, and no result will ever come."""
        counts = self.request_counts
        return self.status == "failed" and not (counts.total or counts.completed)


class BatchPage(Answered):
    data: list[Batch]
    has_more: bool = False


class ErrorDetail(Answered):
    code: str | None = None
    message: str = ""


class Result(Answered):
    """How a job ended: what its line of the output or error file says, with its number and its input line."""

    id: str = ""
    custom_id: str | None = None
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    seq: int
    line: int = 0

    @property
    def text(self) -> str | None:
        """The answer; None where there is none."""
        if self.failure or not self.response:
            return None
        return self.response["body"]["choices"][0]["message"]["content"]

    @property
    def failure(self) -> ErrorDetail | None:
        """Why there is no answer."""
        found = self.error
        if found is None and self.response and self.response["status_code"] >= 400:
            found = self.response["body"]["error"]
        return None if found is None else ErrorDetail.model_validate(found)


class ResultPage(Answered):
    """`last_seq` is the `after` of the next page; `has_more` false and `ended` true: that was all."""

    data: list[Result]
    last_seq: int
    has_more: bool = False
    ended: bool = False


class Review(Answered):
    """`label` is the right value of what was overturned."""

    job_id: str
    field: str = ""
    verdict: str
    label: Any = None
    note: str | None = None
    key_id: str | None = None
    reviewed_at: int | None = None


class LabelledAnswer(Answered):
    """One label of an answer; `field` is '' for the answer as a whole."""

    id: str
    job_id: str
    batch_id: str | None = None
    item: str | None = None
    question: str | None = None
    field: str = ""
    label: str
    text: str = ""
    model: str = ""
    revision: str = ""
    notes: list[str] = []
    policy_version: str | None = None
    created_at: int = 0
    confidence: float | None = None
    review: Review | None = None


class LabelledAnswerPage(Answered):
    """`last_id` is the `after` of the next page."""

    data: list[LabelledAnswer]
    last_id: str | None = None
    has_more: bool = False


class LabelCount(Answered):
    """How many labels; what was not grouped by is None."""

    label: str | None = None
    field: str | None = None
    question: str | None = None
    policy_version: str | None = None
    day: str | None = None
    model: str | None = None
    review: str | None = None
    count: int


class PairAgreement(Answered):
    """How often two people, by their keys, said the same of the answers to a question that both reviewed."""

    question: str | None = None
    field: str = ""
    key_ids: list[str]
    answers: int
    agreed: int
    agreement: float
    kappa: float | None = None


class JobAnswer(Answered):
    text: str
    finish_reason: str


class Job(Answered):
    id: str
    status: str
    answer: JobAnswer | None = None
    error: ErrorDetail | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED
