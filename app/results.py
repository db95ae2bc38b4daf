"""An ended job as its line in a batch's output or error file. Pure: the same job gives the same bytes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.errors import status_may_pass
from app.states import BATCH_FAILED, Endpoint, JobState

# Codes of failures that are not the request's own: told as status 500, all others as 400.
OUR_FAULTS = frozenset(
    {
        "bad_object_name",
        "bad_prompt",
        "bad_reply",
        "engine_closed",
        "engine_crash",
        "engine_died",
        "internal_error",
        "job_timeout",
        "model_not_resident",
        "model_unsupported",
        "nan_logits",
        "object_changed",
        "object_refused",
        "object_store_refused",
        "object_store_unavailable",
        "out_of_memory",
        "prepare_failed",
        "prompt_mismatch",
        "server_refused",
        "step_failed",
    }
)

# Codes of failures that lie with another's server or the network, beside `http_` and a status.
PASSING = frozenset(
    {
        "bad_response",
        "connection_lost",
        "dns",
        "incomplete_body",
        "refused",
        "timeout",
        "tls",
        "unreachable",
        BATCH_FAILED,
    }
)

NEVER_RUN = {
    JobState.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    JobState.CANCELLED: ("batch_cancelled", "This request was not executed: its batch was cancelled."),
}
STOPPED = "This request was not executed: its batch was stopped, since too many of its requests had failed."
FAILED = "The request failed."

SERVER_ERROR = "server_error"
BROKEN = "\ufffd"

# Made once: json.dumps makes an encoder for every call that does not want its defaults.
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

# Legal inside a JSON string, but many readers end a line there (Python's str.splitlines among them).
_LINE_BREAKERS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})

Body = Mapping[str, Any]  # JSON to be

# Of each token: its text, its log probability, and the likeliest ones in its place with theirs.
StoredLogprobs = Sequence[tuple[str, float, Sequence[tuple[str, float]]]]


@dataclass(frozen=True)
class AnsweredJob:
    """A completed job and its answer."""

    id: int
    line: int
    custom_id: str
    model: str
    finished_at: datetime
    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    revision: str
    logprobs: StoredLogprobs | None = None
    notes: Sequence[str] | None = None
    reasoning: str | None = None
    confidence: float | None = None  # of the model that a cascade asked first, whoever has answered


@dataclass(frozen=True)
class UnansweredJob:
    """A job that failed, or was cancelled or expired before it ran. Bad lines may have no custom_id."""

    id: int
    line: int
    custom_id: str | None
    state: JobState
    error_code: str | None
    error_message: str | None
    error_param: str | None


def output_line(job: AnsweredJob, endpoint: str) -> bytes:
    body = BODIES[endpoint](job)
    return _line(job.id, job.custom_id, response=_response(job.id, 200, body), error=None)


def error_line(job: UnansweredJob) -> bytes:
    """A failed job as the response it would have had, one that never ran without any response."""
    code, message = _why_never_run(job)
    if code is not None:
        return _line(job.id, job.custom_id, response=None, error={"code": code, "message": message})
    kind = error_type(job.error_code)
    error = {
        "message": job.error_message or FAILED,
        "type": kind,
        "param": job.error_param,
        "code": job.error_code,
    }
    response = _response(job.id, 500 if kind == SERVER_ERROR else 400, {"error": error})
    return _line(job.id, job.custom_id, response=response, error=None)


def why_unanswered(job: UnansweredJob) -> tuple[str | None, str]:
    """The code and the message of what it failed of, or of why it never ran."""
    code, message = _why_never_run(job)
    if code is None or message is None:
        return job.error_code, job.error_message or FAILED
    return code, message


def as_line(row: Body) -> bytes:
    text = _JSON.encode(row)
    return f"{text if text.isascii() else text.translate(_LINE_BREAKERS)}\n".encode()


def error_type(code: str | None) -> str:
    """OpenAI's word for whose fault a failure is."""
    return SERVER_ERROR if code in OUR_FAULTS else "invalid_request_error"


def may_pass(code: str) -> bool:
    """Whether a job that failed with this code may well succeed if it is tried again later."""
    status = code.removeprefix("http_")
    return code in OUR_FAULTS | PASSING or (
        status != code and status.isdecimal() and status_may_pass(int(status))
    )


def result_object(job: AnsweredJob | UnansweredJob, seq: int, endpoint: str) -> bytes:
    """A job as its file's line says it, with its number in the order of ends and its input line (ours)."""
    line = output_line(job, endpoint) if isinstance(job, AnsweredJob) else error_line(job)
    return line.removesuffix(b"}\n") + f',"seq":{seq},"line":{job.line}}}'.encode()


def result_name(job_id: int) -> str:
    return f"batch_req_{job_id:016x}"


def completion(job: AnsweredJob) -> Body:
    """The answer as a `chat.completion` object; `system_fingerprint` is the model's revision.

    `vqueue` (ours) is there only where there is something to say of the answer.
    """
    said = _of_ours(job)
    return {
        "id": f"chatcmpl-{job.id:016x}",
        "object": "chat.completion",
        "created": int(job.finished_at.timestamp()),
        "model": job.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": job.text, "refusal": None, **_reasoning(job)},
                "finish_reason": job.finish_reason,
                "logprobs": logprobs(job.logprobs),
            }
        ],
        "usage": {
            "prompt_tokens": job.prompt_tokens,
            "completion_tokens": job.completion_tokens,
            "total_tokens": job.prompt_tokens + job.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": job.cached_tokens},
        },
        "system_fingerprint": job.revision,
        **({"vqueue": said} if said else {}),
    }


def _of_ours(job: AnsweredJob) -> Body:
    notes = {"notes": list(job.notes)} if job.notes else {}
    return notes | ({} if job.confidence is None else {"confidence": round(job.confidence, 6)})


def _reasoning(job: AnsweredJob) -> Body:
    """(Not OpenAI's, but what servers of open models say.) There only where the model reasoned."""
    return {"reasoning_content": job.reasoning} if job.reasoning else {}


def response(job: AnsweredJob) -> Body:
    """The answer as a `response` object, with `vqueue` (ours) as in a completion and the model's revision."""
    is_cut = job.finish_reason == "length"
    status = "incomplete" if is_cut else "completed"
    moment = int(job.finished_at.timestamp())
    return {
        "id": f"resp_{job.id:016x}",
        "object": "response",
        "created_at": moment,
        "completed_at": None if is_cut else moment,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "model": job.model,
        "output": [*_thoughts(job, status), _message(job, status)],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "usage": {
            "input_tokens": job.prompt_tokens,
            "input_tokens_details": {"cached_tokens": job.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": job.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": job.prompt_tokens + job.completion_tokens,
        },
        "vqueue": {"revision": job.revision, **_of_ours(job)},
    }


BODIES: Mapping[str, Callable[[AnsweredJob], Body]] = {
    Endpoint.CHAT: completion,
    Endpoint.RESPONSES: response,
}


def logprobs(stored: StoredLogprobs | None) -> Body | None:
    """In OpenAI's shape."""
    if stored is None:
        return None
    content = [
        {**_token(token, logprob), "top_logprobs": [_token(*other) for other in others]}
        for token, logprob, others in stored
    ]
    return {"content": content, "refusal": None}


def _thoughts(job: AnsweredJob, status: str) -> list[Body]:
    if not job.reasoning:
        return []
    content = [{"type": "reasoning_text", "text": job.reasoning}]
    return [
        {"id": f"rs_{job.id:016x}", "type": "reasoning", "status": status, "summary": [], "content": content}
    ]


def _message(job: AnsweredJob, status: str) -> Body:
    text = {"type": "output_text", "text": job.text, "annotations": []}
    if told := logprobs(job.logprobs):
        text["logprobs"] = [_with_bytes(token) for token in told["content"]]
    return {
        "id": f"msg_{job.id:016x}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [text],
    }


def _with_bytes(token: Body) -> Body:
    """As the Responses API has it: an empty list where a completion's `bytes` is null."""
    others = [{**other, "bytes": other["bytes"] or []} for other in token["top_logprobs"]]
    return {**token, "bytes": token["bytes"] or [], "top_logprobs": others}


def _why_never_run(job: UnansweredJob) -> tuple[str, str] | tuple[None, None]:
    if job.error_code == BATCH_FAILED:
        return BATCH_FAILED, STOPPED
    return NEVER_RUN.get(job.state, (None, None))


def _token(token: str, logprob: float) -> Body:
    """A token that is a part of a character only has no text, and so no bytes that could be told."""
    return {"token": token, "logprob": logprob, "bytes": None if BROKEN in token else list(token.encode())}


def _response(job_id: int, status: int, body: Body) -> Body:
    return {"status_code": status, "request_id": f"req_{job_id:016x}", "body": body}


def _line(job_id: int, custom_id: str | None, *, response: Body | None, error: Body | None) -> bytes:
    row = {"id": result_name(job_id), "custom_id": custom_id, "response": response, "error": error}
    return as_line(row)
