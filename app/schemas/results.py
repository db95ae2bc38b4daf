"""Bodies of a batch's results (ours)."""

from typing import Any, Literal

from pydantic import BaseModel, Field


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
