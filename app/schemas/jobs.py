"""Bodies about single jobs (ours)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from app.schemas.base import Request
from app.schemas.wishes import CacheWish
from app.windows import MONTH_S


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
