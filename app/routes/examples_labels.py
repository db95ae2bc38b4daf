"""Requests and answers of labelled answers, for the API's own description, by operation."""

from collections.abc import Mapping
from typing import Any

from app.routes.examples import BATCH_ID, NOW

JOB_ID = "job_000000000000002a"
REVIEW = {
    "object": "review",
    "job_id": JOB_ID,
    "field": "",
    "verdict": "overturn",
    "label": "beige",
    "note": "the strap is beige, too",
    "key_id": "key_6f1c2a9de4b04d3f",
    "reviewed_at": NOW,
}
ENTRY = {
    "id": JOB_ID,
    "object": "labelled_answer",
    "job_id": JOB_ID,
    "batch_id": BATCH_ID,
    "item": "shoes/17.jpg",
    "question": "colour",
    "field": "",
    "label": "brown",
    "text": "brown",
    "model": "qwen3-vl-4b",
    "revision": "a1b2c3",
    "notes": [],
    "policy_version": "2026-11",
    "created_at": NOW,
    "confidence": 0.62,
    "review": REVIEW,
}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "answers_review": {
        "overturn": {"verdict": "overturn", "label": "beige", "note": "the strap is beige, too"},
        "confirm a field": {"verdict": "confirm", "field": "colour"},
    }
}
ANSWERS: Mapping[str, Any] = {
    "answers_list": {
        "object": "list",
        "data": [ENTRY],
        "first_id": JOB_ID,
        "last_id": JOB_ID,
        "has_more": False,
    },
    "answers_count": {
        "object": "label_counts",
        "group_by": ["label", "day"],
        "data": [{"object": "label_count", "label": "brown", "day": "2026-11-30", "count": 412}],
        "total": 412,
    },
    "answers_agreement": {
        "object": "list",
        "data": [
            {
                "object": "agreement",
                "question": "colour",
                "field": "",
                "key_ids": ["key_6f1c2a9de4b04d3f", "key_b3a07c55d21e4f90"],
                "answers": 200,
                "agreed": 188,
                "agreement": 0.94,
                "kappa": 0.87,
            }
        ],
        "has_more": False,
    },
    "answers_review": REVIEW,
    "answers_delete_review": {"object": "review", "job_id": JOB_ID, "deleted": True},
}
