"""Bodies of the answer cache's calls (ours)."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.schemas.base import Request, Str


class CacheForget(Request):
    """Which answers to forget; jobs that were given them keep them."""

    model: Annotated[Str, Field(min_length=1)] | None = None
    question: str | None = Field(default=None, min_length=1, description="the last text, word for word")
    all: bool = False


class CacheForgotten(BaseModel):
    object: Literal["answer_cache.forgotten"] = "answer_cache.forgotten"
    forgotten: int


class CacheModel(BaseModel):
    object: Literal["answer_cache.model"] = "answer_cache.model"
    model: str
    answers: int
    model_seconds: float = Field(description="what they took of the model's time")


class CacheStock(BaseModel):
    object: Literal["list"] = "list"
    data: list[CacheModel]
    has_more: Literal[False] = False
