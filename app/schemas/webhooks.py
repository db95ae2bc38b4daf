"""Bodies of the webhook endpoints, as OpenAI's API has them; ours are marked so."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.schemas.base import Request, Str

EventType = Literal[
    "batch.completed",
    "batch.failed",
    "batch.expired",
    "batch.cancelled",
    "batch.progress",
    "sweep.run.completed",
    "sweep.run.failed",
    "sweep.run.stalled",
]
EventTypes = Annotated[list[EventType], Field(min_length=1, max_length=16)]
Name = Annotated[Str, Field(min_length=1, max_length=256)]
Target = Annotated[Str, Field(min_length=1, max_length=2048)]


class EndpointCreate(Request):
    name: Name
    url: Target = Field(description="https://")
    event_types: EventTypes


class EndpointUpdate(Request):
    name: Name | None = None
    url: Target | None = None
    event_types: EventTypes | None = None


class SecretRotate(Request):
    keep_old_secret_active_for_24_hours: bool = False


class EndpointTest(Request):
    event_type: EventType


class EndpointObject(BaseModel):
    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    name: str
    url: str
    event_types: list[str]
    created_at: int
    updated_at: int
    signing_secret_hint: str
    status: str = Field(
        description="(ours) active; resting after failures in a row; gone since it answered 410, until it is "
        "updated"
    )
    failures: int = Field(description="(ours) tries that have failed in a row")


class EndpointWithSecret(EndpointObject):
    signing_secret: str


class EndpointList(BaseModel):
    object: Literal["list"] = "list"
    data: list[EndpointObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class EndpointDeleted(BaseModel):
    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: Literal[True] = True


class EndpointTestResult(BaseModel):
    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    status_code: int
    success: bool = Field(description="whether it was answered 2xx")


class EventTypeList(BaseModel):
    object: Literal["list"] = "list"
    data: list[str]


class DeliveryObject(BaseModel):
    """(ours) An event on its way to an endpoint, or how it went."""

    id: str
    object: Literal["webhook_delivery"] = "webhook_delivery"
    event_id: str
    event_type: str
    status: str = Field(description="pending, delivered or failed")
    attempt: int
    next_attempt_at: int | None
    status_code: int | None = Field(description="of the last answer")
    error: str | None = Field(description="why the last try failed")
    created_at: int
    ended_at: int | None


class DeliveryList(BaseModel):
    object: Literal["list"] = "list"
    data: list[DeliveryObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
