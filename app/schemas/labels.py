"""(ours) Bodies of labelled answers, their counts and their reviews."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.schemas.base import Request, Str

Verdict = Literal["confirm", "overturn"]
ReviewState = Literal["none", "confirmed", "overturned"]
Scalar = Annotated[Str, Field(max_length=1000)] | bool | int | float | None
LabelValue = Scalar | Annotated[list[Scalar], Field(max_length=100)]


class ReviewPut(Request):
    verdict: Verdict
    label: LabelValue = Field(
        default=None, description="the right value; needed to overturn an answer, and only then"
    )
    field: Annotated[Str, Field(max_length=200)] | None = Field(
        default=None, description="of a JSON schema's answer: which field; not needed where there is one"
    )
    note: Annotated[Str, Field(max_length=2000)] | None = None


class ReviewObject(BaseModel):
    object: Literal["review"] = "review"
    job_id: str
    field: str = Field(description="'' for the answer as a whole")
    verdict: Verdict
    label: LabelValue = Field(description="the right value of what was overturned, else null")
    note: str | None
    key_id: str | None = Field(description="the key by which it was said last")
    reviewed_at: int | None


class ReviewDeleted(BaseModel):
    object: Literal["review"] = "review"
    job_id: str
    deleted: Literal[True] = True


class LabelledAnswer(BaseModel):
    """One label of an answer: an answer with several fields has several."""

    id: str
    object: Literal["labelled_answer"] = "labelled_answer"
    job_id: str
    batch_id: str | None = Field(description="null of a direct job")
    item: str | None = Field(description="the custom_id, without the question's name")
    question: str | None = Field(description="its name in a table or a sweep")
    field: str = Field(description="of a JSON schema's answer; '' for the answer as a whole")
    label: str
    text: str = Field(description="the whole answer")
    model: str
    revision: str
    notes: list[str]
    policy_version: str | None
    created_at: int
    confidence: float | None = Field(description="how sure the model was of it, where that is known")
    review: ReviewObject | None


class LabelledAnswerList(BaseModel):
    object: Literal["list"] = "list"
    data: list[LabelledAnswer]
    first_id: str | None
    last_id: str | None
    has_more: bool


class LabelCount(BaseModel):
    """Only what was grouped by is there."""

    object: Literal["label_count"] = "label_count"
    label: str | None = None
    field: str | None = None
    question: str | None = None
    policy_version: str | None = None
    day: str | None = Field(default=None, description="UTC", json_schema_extra={"format": "date"})
    model: str | None = None
    review: ReviewState | None = None
    count: int


class LabelCounts(BaseModel):
    object: Literal["label_counts"] = "label_counts"
    group_by: list[str]
    data: list[LabelCount]
    total: int


class PairAgreement(BaseModel):
    """How often two people said the same of the answers to a question that both have reviewed."""

    object: Literal["agreement"] = "agreement"
    question: str | None
    field: str
    key_ids: list[str] = Field(description="the two keys by which it was said")
    answers: int
    agreed: int
    agreement: float = Field(description="agreed of answers, from 0 to 1")
    kappa: float | None = Field(description="Cohen's; null where chance alone would have them agree always")


class AgreementList(BaseModel):
    object: Literal["list"] = "list"
    data: list[PairAgreement]
    has_more: Literal[False] = False
