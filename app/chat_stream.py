"""How a chat completion is streamed: what its body asks for, and the events that it becomes. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.checks import Json, shown, wrong
from app.errors import RequestError
from app.results import AnsweredJob, Body, completion

KEEP_ALIVE = b": keep-alive\n\n"  # a comment, which clients skip
DONE = b"data: [DONE]\n\n"

OPTIONS = ("include_usage", "include_obfuscation")


@dataclass(frozen=True)
class Streaming:
    """Whether the answer is to be streamed, and whether its usage is to be told at the end."""

    wanted: bool = False
    include_usage: bool = False


def read_streaming(body: Mapping[str, Json]) -> Streaming:
    """Raises RequestError; obfuscation, which only fills events up, is taken and left aside."""
    wanted, options = body.get("stream"), body.get("stream_options")
    if wanted is not None and not isinstance(wanted, bool):
        raise wrong("stream", f"stream must be true or false, not {shown(wanted)}.")
    if options is None:
        return Streaming(bool(wanted))
    if not wanted:
        raise wrong("stream_options", "stream_options needs stream: true beside it.")
    if not isinstance(options, dict):
        raise wrong("stream_options", f"stream_options must be an object, not {shown(options)}.")
    for name, value in options.items():
        if name not in OPTIONS:
            raise wrong("stream_options", f"The option {shown(name)} is not known: leave it out.")
        if value is not None and not isinstance(value, bool):
            raise wrong(f"stream_options.{name}", f"{name} must be true or false, not {shown(value)}.")
    return Streaming(True, bool(options.get("include_usage")))


@dataclass(frozen=True)
class Chunks:
    """Makes the events of one streamed answer; every chunk but the last has a null `usage` where it is asked
    for, as OpenAI's have."""

    job_id: int
    model: str
    created: int
    include_usage: bool

    def role(self) -> bytes:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def text(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def end(self, answer: AnsweredJob) -> Iterator[bytes]:
        """What is known at the end only: finish reason, log probabilities, notes, revision, usage."""
        whole = completion(answer)
        choice = whole["choices"][0]
        notes = {"vqueue": whole["vqueue"]} if "vqueue" in whole else {}
        told = {"system_fingerprint": whole["system_fingerprint"], **notes}
        yield self._chunk(
            {}, finish_reason=choice["finish_reason"], logprobs=choice["logprobs"], further=told
        )
        if self.include_usage:
            yield _event({**self._head(), **told, "choices": [], "usage": whole["usage"]})
        yield DONE

    def _chunk(
        self,
        delta: Body,
        *,
        finish_reason: str | None = None,
        logprobs: Body | None = None,
        further: Body | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        usage = {"usage": None} if self.include_usage else {}
        return _event({**self._head(), **(further or {}), "choices": [choice], **usage})

    def _head(self) -> Body:
        return {
            "id": f"chatcmpl-{self.job_id:016x}",
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
        }


def error_event(error: RequestError) -> bytes:
    """An error after the stream has begun: the SDK raises it."""
    return _event({"error": error.content()})


def _event(content: Body) -> bytes:
    return f"data: {json.dumps(content, separators=(',', ':'), allow_nan=False)}\n\n".encode()
