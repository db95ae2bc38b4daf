"""(ours) Bodies of keys and of the audit log."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app.schemas.base import Request, Str

ScopeName = Literal["*", "read", "write", "review", "chat", "admin"]


class KeyCreate(Request):
    name: Annotated[Str, Field(min_length=1, max_length=256)] = "default"
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=6)] = Field(
        default=["*"],
        description="read, write, review, chat, admin, or * for all; none that the caller's key lacks",
    )
    expires_days: int | None = Field(default=None, ge=1, le=36_500)


class KeyObject(BaseModel):
    id: str
    object: Literal["api_key"] = "api_key"
    name: str
    prefix: str = Field(description="the key's first characters")
    scopes: list[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None = Field(description="to the minute")


class KeyWithSecret(KeyObject):
    key: str = Field(description="shown this once")


class KeyList(BaseModel):
    object: Literal["list"] = "list"
    data: list[KeyObject]
    has_more: Literal[False] = False


class AuditEntry(BaseModel):
    id: str
    object: Literal["audit_entry"] = "audit_entry"
    at: int
    action: str
    object_id: str | None
    key_id: str | None = Field(description="null: done on the machine itself")
    request_id: str | None
    details: dict[str, Any] | None


class AuditList(BaseModel):
    object: Literal["list"] = "list"
    data: list[AuditEntry]
    first_id: str | None
    last_id: str | None
    has_more: bool
