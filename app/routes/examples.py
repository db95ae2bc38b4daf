"""Requests and answers that the API's own description shows, by operation."""

from collections.abc import Mapping
from typing import Any

NOW = 1_767_323_045
IMAGE = "https://example.com/mug.jpg"
FILE_ID = "file-6f1c2a9de4b04d3f"
BATCH_ID = "batch_6f1c2a9de4b04d3f"
JOB_ID = "job_00000000000000ff"

USAGE = {
    "prompt_tokens": 840,
    "completion_tokens": 3,
    "total_tokens": 843,
    "prompt_tokens_details": {"cached_tokens": 832},
}
SCHEMA = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}

FILE = {
    "id": FILE_ID,
    "object": "file",
    "bytes": 120_000,
    "created_at": NOW,
    "expires_at": NOW + 2_592_000,
    "filename": "night.jsonl",
    "purpose": "batch",
    "status": "processed",
    "status_details": None,
}
ERROR_COUNT = {
    "code": "http_404",
    "count": 2,
    "line": 17,
    "message": "example.com answered 404. The image was not found there.",
    "type": "invalid_request_error",
    "retryable": False,
}
BATCH = {
    "id": BATCH_ID,
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "model": "demo",
    "errors": None,
    "input_file_id": FILE_ID,
    "completion_window": "24h",
    "status": "in_progress",
    "output_file_id": None,
    "error_file_id": None,
    "created_at": NOW,
    "in_progress_at": NOW + 2,
    "expires_at": NOW + 86_400,
    "finalizing_at": None,
    "completed_at": None,
    "failed_at": None,
    "expired_at": None,
    "cancelling_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 1000, "completed": 400, "failed": 2},
    "usage": {
        "input_tokens": 336_000,
        "input_tokens_details": {"cached_tokens": 300_000},
        "output_tokens": 1200,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 337_200,
    },
    "metadata": {"night": "2026-01-02"},
    "vqueue": {
        "priority": "standard",
        "retry_of": None,
        "dry_run": False,
        "report": None,
        "pace": 21.5,
        "estimated_completion_at": NOW + 60,
        "errors_by_code": [ERROR_COUNT],
        "cache": {"mode": "on", "answered": 120_000, "model_seconds_saved": 4_810.5},
        "cascade": None,
        "model_seconds": 9_620.25,
        "near_duplicates": {"distance": 4, "answered": 3_100},
        "waiting_for": None,
    },
}
JOB = {
    "id": JOB_ID,
    "object": "job",
    "status": "completed",
    "model": "demo",
    "attempt": 1,
    "created_at": NOW,
    "started_at": NOW + 1,
    "finished_at": NOW + 2,
    "answer": {
        "text": "red",
        "finish_reason": "stop",
        "usage": USAGE,
        "revision": "4f2a",
        "logprobs": None,
        "notes": [],
    },
    "error": None,
}
NOT_YET = {"status": "ready", "attempt": 0, "started_at": None, "finished_at": None, "answer": None}
COMPLETION = {
    "id": "chatcmpl-00000000000000ff",
    "object": "chat.completion",
    "created": NOW,
    "model": "demo",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "red", "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": USAGE,
    "system_fingerprint": "4f2a",
}
RESPONSE = {
    "id": "resp_00000000000000ff",
    "object": "response",
    "created_at": NOW,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "demo",
    "output": [
        {
            "id": "msg_00000000000000ff",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "red", "annotations": []}],
        }
    ],
    "parallel_tool_calls": False,
    "tool_choice": "none",
    "tools": [],
    "usage": {
        "input_tokens": 840,
        "input_tokens_details": {"cached_tokens": 832, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 843,
    },
    "vqueue": {"revision": "4f2a"},
}
RESULT = {
    "id": "batch_req_00000000000000ff",
    "custom_id": "mug-17",
    "response": {"status_code": 200, "request_id": "req_00000000000000ff", "body": COMPLETION},
    "error": None,
    "seq": 1,
    "line": 17,
}
MODEL = {"id": "demo", "object": "model", "created": NOW, "owned_by": "vqueue", "root": "demo"}


def _list(*data: Mapping[str, Any]) -> Mapping[str, Any]:
    ids = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return {"object": "list", "data": list(data), **ids, "has_more": False}


# By the operation's id: what may be asked, each under a name of its own.
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "batches_create": {
        "plain": {
            "input_file_id": FILE_ID,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"night": "2026-01-02"},
        },
        "background": {
            "input_file_id": FILE_ID,
            "endpoint": "/v1/responses",
            "completion_window": "7d",
            "priority": "background",
            "failure_brake": {"share": 0.5, "after": 100},
        },
    },
    "batches_retry": {"failed": {"states": ["failed"]}, "expired": {"states": ["failed", "expired"]}},
    "jobs_submit": {
        "image": {"question": "What colour is the mug?", "image": IMAGE, "max_tokens": 16},
        "form": {
            "question": "What colour is the mug?",
            "image": IMAGE,
            "response_format": {"type": "json_schema", "json_schema": {"name": "mug", "schema": SCHEMA}},
        },
    },
    "chat_complete": {
        "image": {
            "model": "demo",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
                        {"type": "text", "text": "What colour is the mug?"},
                    ],
                }
            ],
            "max_tokens": 16,
        }
    },
    "responses_respond": {
        "image": {
            "model": "demo",
            "instructions": "Answer with one word.",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
                        {"type": "input_text", "text": "What colour is the mug?"},
                    ],
                }
            ],
        }
    },
}
# By the operation's id: what is answered when all goes well.
ANSWERS: Mapping[str, Any] = {
    "files_upload": FILE,
    "files_list": _list(FILE),
    "files_read": FILE,
    "files_delete": {"id": FILE_ID, "object": "file", "deleted": True},
    "batches_create": {**BATCH, "status": "validating"},
    "batches_list": _list(BATCH),
    "batches_read": BATCH,
    "batches_cancel": {**BATCH, "status": "cancelling", "cancelling_at": NOW + 30},
    "batches_delete": {"id": BATCH_ID, "object": "batch", "deleted": True},
    "batches_retry": {**BATCH, "status": "validating"},
    "batches_read_results": {
        **_list(RESULT),
        "last_seq": 1,
        "ended": False,
        "batch_status": "in_progress",
    },
    "batches_read_errors": {
        "object": "list",
        "data": [ERROR_COUNT],
        "has_more": False,
    },
    "jobs_submit": {**JOB, **NOT_YET},
    "jobs_read": JOB,
    "jobs_delete": {"id": JOB_ID, "object": "job", "deleted": True},
    "chat_complete": COMPLETION,
    "responses_respond": RESPONSE,
    "health_alive": {"status": "ok"},
    "health_ready": {"status": "ok", "checks": {"database": "ok", "object_store": "ok"}},
    "models_list": {"object": "list", "data": [MODEL]},
    "models_read": MODEL,
}
