"""Requests that are answered at once, as OpenAI's API has them; fields are checked elsewhere."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


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
