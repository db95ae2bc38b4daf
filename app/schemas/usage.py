"""(ours) Bodies of usage reports."""

from typing import Literal

from pydantic import BaseModel, Field


class UsageCost(BaseModel):
    """By `VQUEUE_PRICES` as they are now."""

    amount: float
    currency: str


class UsageCounts(BaseModel):
    completed: int = Field(description="jobs that were answered")
    failed: int = Field(description="jobs that ended otherwise")
    prompt_tokens: int
    cached_tokens: int = Field(description="of the prompt tokens, those computed for an earlier request")
    completion_tokens: int
    cost: UsageCost | None = Field(
        description="null: a model has no price, or the prices are in several currencies"
    )


class UsageRow(UsageCounts):
    """What is not grouped by is null."""

    object: Literal["usage"] = "usage"
    day: str | None = Field(description="UTC", json_schema_extra={"format": "date"})
    key_id: str | None = Field(description="'' where it is not known")
    model: str | None = Field(description="'' where no line was a request")


class UsageReport(BaseModel):
    object: Literal["usage_report"] = "usage_report"
    start: str = Field(json_schema_extra={"format": "date"})
    end: str = Field(description="inclusive", json_schema_extra={"format": "date"})
    group_by: list[str]
    data: list[UsageRow]
    total: UsageCounts
