"""Requests and answers of what belongs to a tenant, for the API's own description, by operation."""

from collections.abc import Mapping
from typing import Any

from app.routes.examples import BATCH_ID, NOW

KEY = {
    "id": "key_6f1c2a9de4b04d3f",
    "object": "api_key",
    "name": "nightly",
    "prefix": "vq_4f9aB2",
    "scopes": ["read", "write"],
    "created_at": NOW,
    "expires_at": NOW + 7_776_000,
    "revoked_at": None,
    "last_used_at": None,
}
ENTRY = {
    "id": "audit_17",
    "object": "audit_entry",
    "at": NOW,
    "action": "batch.created",
    "object_id": BATCH_ID,
    "key_id": KEY["id"],
    "request_id": "req_6f1c2a9de4b04d3f",
    "details": {"input_file_id": "file-6f1c2a9de4b04d3f"},
}
USED = {
    "completed": 1200,
    "failed": 3,
    "prompt_tokens": 960_000,
    "cached_tokens": 240_000,
    "completion_tokens": 36_000,
    "cost": {"amount": 0.1776, "currency": "USD"},
}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "cache_forget": {"question": {"model": "qwen3-vl-4b", "question": "Which colour is it?"}},
    "tenant_create_key": {
        "narrow": {"name": "nightly", "scopes": ["read", "write"], "expires_days": 90},
    },
}
ANSWERS: Mapping[str, Any] = {
    "cache_read": {
        "object": "list",
        "data": [
            {
                "object": "answer_cache.model",
                "model": "qwen3-vl-4b",
                "answers": 840_000,
                "model_seconds": 33_600.0,
            }
        ],
        "has_more": False,
    },
    "cache_forget": {"object": "answer_cache.forgotten", "forgotten": 1200},
    "tenant_list_keys": {"object": "list", "data": [KEY], "has_more": False},
    "tenant_read_key": KEY,
    "tenant_create_key": {**KEY, "key": "vq_4f9aB2..."},
    "tenant_revoke_key": {**KEY, "revoked_at": NOW + 60},
    "tenant_read_usage": {
        "object": "usage_report",
        "start": "2026-11-01",
        "end": "2026-11-30",
        "group_by": ["day", "key", "model"],
        "data": [
            {
                **USED,
                "object": "usage",
                "day": "2026-11-30",
                "key_id": KEY["id"],
                "model": "qwen3-vl-4b",
            }
        ],
        "total": USED,
    },
    "tenant_read_audit": {
        "object": "list",
        "data": [ENTRY],
        "first_id": ENTRY["id"],
        "last_id": ENTRY["id"],
        "has_more": False,
    },
}
