"""Labelled answers for tests: jobs under a choice list or a schema, as a worker answers them; and calls."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from app.db import Sessions, transaction
from app.ids import job_name
from app.labels import read_labels
from app.store import labels, records
from tests.rows import Rows

CHOICE = {"choice": ["red", "blue", "green"]}
SCHEMA = {
    "json_schema": json.dumps(
        {
            "type": "object",
            "properties": {
                "colour": {"type": "string"},
                "worn": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
}

TABLE = {"image_columns": ["i"], "questions": [{"name": "colour", "ask": "?"}, {"name": "kind", "ask": "?"}]}


@dataclass
class Labelled:
    """Answers of one tenant."""

    rows: Rows

    @staticmethod
    def of(sessions: Sessions, tenant: str) -> "Labelled":
        return Labelled(Rows(sessions, tenant))

    def batch(
        self, batch_id: str, *, policy: str | None = None, table: Mapping[str, Any] | None = None
    ) -> str:
        self.rows.add_batch(batch_id)
        metadata = {"vqueue_policy_version": policy} if policy else {}
        self.rows.run(
            "UPDATE batches SET metadata = CAST(:m AS jsonb), input_table = CAST(:t AS json) WHERE id = :id",
            id=batch_id,
            m=json.dumps(metadata),
            t=json.dumps(table) if table else None,
        )
        return batch_id

    def answer(
        self,
        text: str,
        *,
        batch_id: str | None = None,
        constraint: Mapping[str, Any] | None = CHOICE,
        model: str = "demo",
        day: str | None = None,
        **columns: Any,
    ) -> str:
        """The name of a job that was answered so; on a day, as `2026-11-30`, if one is given."""
        (job_id,) = self.rows.add_jobs(1, batch_id=batch_id, **columns)
        params = {"max_tokens": 8} | ({"constraint": constraint} if constraint else {})
        self.rows.run("UPDATE jobs SET params = :p WHERE id = :id", id=job_id, p=json.dumps(params))
        self.rows.claim([job_id])
        with transaction(self.rows.sessions) as session:
            row = records.AnswerRow(job_id, 1, text, "stop", 10, 2, 3)
            assert records.record_answers(session, [row], model=model, revision="r1")
            labels.note_labels(session, {job_id: read_labels(constraint, text)})
        if day is not None:
            self.rows.run(
                "UPDATE labels SET created_at = :at WHERE job_id = :id", id=job_id, at=f"{day} 12:00Z"
            )
        return job_name(job_id)


def get(http: httpx.Client, path: str = "", **query: Any) -> Any:
    answer = http.get(f"/v1/answers{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(http: httpx.Client, by: str, **query: Any) -> dict[Any, int]:
    """By the values of the groups, alone or together."""
    rows = get(http, "/count", group_by=by, **query)["data"]
    groups = by.split(",")
    return {
        row[groups[0]] if len(groups) == 1 else tuple(row[name] for name in groups): row["count"]
        for row in rows
    }


def put(http: httpx.Client, job: str, **body: Any) -> httpx.Response:
    return http.put(f"/v1/answers/{job}/review", json=body)


def told(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]
