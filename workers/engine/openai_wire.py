"""Requests and answers in the words of OpenAI's chat completions, as other servers speak them. Pure."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import PIL.Image

from app.errors import FatalWork, InvalidWork, TransientWork, WorkError
from workers.engine.base import (
    CLOSE_REASONING,
    OPEN_REASONING,
    Answer,
    Choice,
    Constraint,
    FinishReason,
    ImagePart,
    JsonObject,
    JsonSchema,
    Note,
    Part,
    Request,
    TokenLogprob,
    Turn,
    Usage,
)
from workers.engine.repetition import repeats

Json = Any  # what a server sent, looked into field by field
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
OURS = frozenset({401, 403, 404, 405})
CONTEXT_WORDS = ("context length", "maximum model length", "max_model_len", "too many tokens", "input length")
MOST_WORDS = 500  # of a server's message


class Dialect(StrEnum):
    """Who serves: they differ in what OpenAI's API does not have."""

    VLLM = "vllm"
    SGLANG = "sglang"
    PLAIN = "plain"


def dialect(owner: str) -> Dialect:
    """By the `owned_by` of the model's entry."""
    return Dialect(owner) if owner in (Dialect.VLLM, Dialect.SGLANG) else Dialect.PLAIN


def data_url(picture: PIL.Image.Image) -> str:
    """As PNG, so that the server sees the pixels that we have."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def body(request: Request, urls: Mapping[int, str], *, model: str, speaks: Dialect) -> dict[str, Json]:
    """What to post; `urls` has the images by their number. Raises InvalidWork for what the server has not."""
    sampling = request.sampling
    made: dict[str, Json] = {
        "model": model,
        "messages": [_message(turn, urls) for turn in request.turns],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.seed is not None:
        made["seed"] = sampling.seed
    if stops := [stop for stop in sampling.stop if stop]:
        made["stop"] = stops
    if sampling.top_k:
        made["top_k"] = sampling.top_k
    if sampling.repetition_penalty != 1:
        made["repetition_penalty"] = sampling.repetition_penalty
    if sampling.logprobs is not None:
        made |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    if request.constraint is not None:
        made |= _constraint(request.constraint, speaks)
    if speaks is Dialect.VLLM:  # its prefix cache is shared among all who ask with the same salt
        made["cache_salt"] = f"scope:{request.cache_scope}"
    if request.on_text is not None:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    return made


def _message(turn: Turn, urls: Mapping[int, str]) -> dict[str, Json]:
    return {"role": turn.role, "content": [_part(part, urls) for part in turn.parts]}


def _part(part: Part, urls: Mapping[int, str]) -> dict[str, Json]:
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": urls[part.index]}}
    return {"type": "text", "text": part.text}


def _constraint(constraint: Constraint, speaks: Dialect) -> dict[str, Json]:
    match constraint, speaks:
        case JsonObject(), _:
            return {"response_format": {"type": "json_object"}}
        case JsonSchema(schema), _:
            named = {"name": "answer", "schema": json.loads(schema), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case Choice(options), Dialect.VLLM:
            return {"structured_outputs": {"choice": list(options)}}
        case Choice(options), Dialect.SGLANG:
            return {"regex": "(" + "|".join(map(_escaped, options)) + ")"}
        case _:
            raise InvalidWork(
                "constraint_unsupported",
                "the model's server cannot hold an answer to a list of choices",
            )


def _escaped(text: str) -> str:
    """For a regular expression of any flavour."""
    return "".join(f"\\{char}" if char in r"\.^$|?*+()[]{}/-" else char for char in text)


@dataclass
class Gathered:
    """An answer as it comes, in one piece or many."""

    request: Request
    text: str = ""
    reason: str | None = None
    usage: Json = None
    logprobs: tuple[TokenLogprob, ...] = ()
    is_thinking: bool = False

    def add(self, choice: Json, said: Json) -> bool:
        """One choice, and its message or delta; whether it brought a part of the answer."""
        piece = self._marked(said.get("reasoning_content") or said.get("reasoning"), said.get("content"))
        self.text += piece
        self.reason = choice.get("finish_reason") or self.reason
        found = (choice.get("logprobs") or {}).get("content") or ()
        self.logprobs += tuple(_logprob(token) for token in found)
        if piece and self.request.on_text is not None:
            self.request.on_text(piece)
        return bool(piece or self.reason)

    def _marked(self, thought: str | None, words: str | None) -> str:
        """Reasoning that a server tells apart, as engines give it: marked, before the answer's words."""
        piece = ""
        if thought:
            piece = thought if self.is_thinking else OPEN_REASONING + thought
            self.is_thinking = True
        if words and self.is_thinking:
            self.is_thinking = False
            return f"{piece}{CLOSE_REASONING}\n\n{words}"
        return piece + (words or "")

    def answer(self) -> Answer:
        reason = self._finish_reason()
        counts = self.usage or {}
        details = counts.get("prompt_tokens_details") or {}
        usage = Usage(
            int(counts.get("prompt_tokens") or 0),
            int(counts.get("completion_tokens") or 0),
            int(details.get("cached_tokens") or 0),
        )
        asked = self.request.sampling.logprobs is not None
        return Answer(self.text, reason, usage, self.logprobs if asked else None, self._notes(reason))

    def _finish_reason(self) -> FinishReason:
        match self.reason:
            case "stop" | "length":
                return self.reason
            case "content_filter":
                raise InvalidWork("content_filtered", "the server's filter holds the answer back")
            case other:
                raise TransientWork("server_aborted", f"the server ended the answer itself: {other}")

    def _notes(self, reason: FinishReason) -> tuple[Note, ...]:
        """Repetition is told by characters, as a server does not say its tokens."""
        empty = () if self.text.strip() else (Note.EMPTY,)
        return (*empty, Note.REPETITION) if reason == "length" and repeats([*map(ord, self.text)]) else empty


def _logprob(token: Json) -> TokenLogprob:
    top = tuple((other["token"], other["logprob"]) for other in token.get("top_logprobs") or ())
    return TokenLogprob(token["token"], token["logprob"], top)


def read_reply(request: Request, reply: Json) -> Answer:
    """A whole answer; FatalWork where it is not one."""
    gathered = Gathered(request, usage=reply.get("usage"))
    try:
        choice = reply["choices"][0]
        gathered.add(choice, choice["message"])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise bad_reply(error) from error
    return gathered.answer()


def refusal(status: int, text: str, *, retry_after_s: float | None = None) -> WorkError:
    """What a server's refusal means for the job, with the server's own words."""
    words = _words(text)
    if status in BUSY:
        return TransientWork("server_busy", f"the server says {status}: {words}", retry_after_s=retry_after_s)
    if status in OURS:
        return FatalWork("server_refused", f"the server says {status}: {words}")
    if any(sign in words.lower() for sign in CONTEXT_WORDS):
        return InvalidWork("context_length_exceeded", words)
    if 400 <= status < 500:
        return InvalidWork("invalid_request", f"the server says {status}: {words}")
    return TransientWork("server_busy", f"the server says {status}: {words}")


def bad_reply(error: Exception) -> WorkError:
    return FatalWork("bad_reply", f"the server's answer cannot be read ({error!r})")


def _words(text: str) -> str:
    """The message of an error body in any of the forms that servers have."""
    try:
        read = json.loads(text)
    except ValueError:
        return text.strip()[:MOST_WORDS]
    found = read.get("error", read) if isinstance(read, dict) else read
    said = found.get("message", found) if isinstance(found, dict) else found
    return str(said).strip()[:MOST_WORDS]


def events(line: str) -> Json | None:
    """The JSON of a line of a stream; None for what is no data."""
    data = line.removeprefix("data:").strip()
    return json.loads(data) if line.startswith("data:") and data != "[DONE]" else None


def model_entry(listing: Json, model: str) -> Json:
    """The model's entry in a server's list; FatalWork names what there is instead."""
    entries: Sequence[Json] = listing.get("data") or ()
    for entry in entries:
        if entry.get("id") == model:
            return entry
    there = ", ".join(str(entry.get("id")) for entry in entries) or "none"
    raise FatalWork("model_not_found", f"the server has no model {model!r}; it has: {there}")
