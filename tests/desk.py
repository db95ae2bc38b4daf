"""A desk for tests of batches: hands files in, plays the worker and the fetcher, looks at what is stored."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from app.answer_keys import CacheMode
from app.config import Settings
from app.db import Sessions, transaction
from app.ids import file_key, new_batch_id, new_file_id
from app.objects import ObjectStore
from app.states import BatchStatus
from app.store import batches, files, images
from app.store.batches import BatchRow, NewBatch
from app.store.files import FileRow, NewFile
from app.store.images import StoredImage
from app.store.jobs import ClaimedJob, claim
from app.store.records import AnswerRow, record_answers

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


@dataclass(frozen=True)
class StoredJob:
    """A job row as it stands."""

    id: int
    line: int
    custom_id: str | None
    state: str
    image_ids: Sequence[int]
    waiting_on: int
    error_code: str | None
    error_message: str | None
    error_param: str | None
    prompt: dict[str, Any]
    params: dict[str, Any]


def line(custom_id: Any, content: Any = "What is it?", *, model: str = "demo", **changes: Any) -> str:
    """One good input line."""
    body = {"model": model, "messages": [{"role": "user", "content": content}]} | changes
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def lines(count: int) -> list[str]:
    return [line(f"r{number}") for number in range(1, count + 1)]


class Desk:
    def __init__(self, *, sessions: Sessions, objects: ObjectStore, settings: Settings) -> None:
        self.sessions = sessions
        self.objects = objects
        self.settings = settings
        self.tenant = f"tenant_{uuid4().hex[:8]}"
        with transaction(sessions) as session:
            session.execute(text("INSERT INTO tenants (id, name) VALUES (:id, :id)"), {"id": self.tenant})

    def submit(
        self,
        content: bytes | Sequence[str],
        *,
        window_s: int = 86_400,
        expires: int | None = None,
        filename: str = "in.jsonl",
        table: Mapping[str, Any] | None = None,
        cache: CacheMode = CacheMode.OFF,
        cascade: Mapping[str, Any] | None = None,
        near_distance: int | None = None,
    ) -> str:
        """Hand in a file and create a batch of it, as the API does; the batch's id."""
        data = content if isinstance(content, bytes) else "".join(f"{row}\n" for row in content).encode()
        file_id, batch_id = new_file_id(), new_batch_id()
        key = file_key(self.tenant, file_id)
        self.objects.put(key, data, content_type="application/jsonl")
        file = NewFile(file_id, self.tenant, "batch", filename, "application/jsonl", len(data), key, None)
        batch = NewBatch(
            id=batch_id,
            tenant_id=self.tenant,
            endpoint="/v1/chat/completions",
            input_file_id=file_id,
            completion_window="24h",
            window_s=window_s,
            metadata=None,
            output_expires_after_s=expires,
            request_hash=batch_id,
            idempotency_key=None,
            input_table=json.dumps(table) if table is not None else None,
            cache=cache,
            cascade=json.dumps(cascade) if cascade is not None else None,
            near_distance=near_distance,
        )
        with transaction(self.sessions) as session:
            files.insert_file(session, file)
            batches.insert_batch(session, batch)
        return batch_id

    def submit_place(self, place: str, table: Mapping[str, Any]) -> str:
        """Create a batch of what lies below a bucket prefix; its id."""
        batch_id = self.submit([], filename="in.csv", table=table)
        self.execute("UPDATE batches SET input_file_id = :place WHERE id = :id", place=place, id=batch_id)
        return batch_id

    def batch(self, batch_id: str) -> BatchRow:
        with transaction(self.sessions) as session:
            found = batches.read_batch(session, self.tenant, batch_id)
        assert found
        return found

    def status(self, batch_id: str) -> BatchStatus:
        return self.batch(batch_id).status

    def counts(self, batch_id: str) -> tuple[int, int, int]:
        """Total, completed and failed."""
        batch = self.batch(batch_id)
        return batch.total, batch.completed, batch.failed

    def jobs(self, batch_id: str) -> list[StoredJob]:
        with transaction(self.sessions) as session:
            rows = session.execute(
                text(
                    """
                    SELECT id, line, custom_id, state, image_ids, waiting_on, error_code, error_message,
                           error_param,
                           prompt, params
                    FROM jobs WHERE batch_id = :batch ORDER BY line
                    """
                ),
                {"batch": batch_id},
            )
            return [StoredJob(*row) for row in rows]

    def cancel(self, batch_id: str) -> None:
        with transaction(self.sessions) as session:
            assert batches.cancel_batch(session, self.tenant, batch_id)

    def pass_deadline(self, batch_id: str) -> None:
        self.execute("UPDATE batches SET expires_at = now() WHERE id = :id", id=batch_id)

    def pass_leases(self) -> None:
        """What the clock would do: every lease on a batch has run out."""
        self.execute("UPDATE batches SET lease_until = now() WHERE lease_until IS NOT NULL")

    def claim(self, batch_id: str, *, count: int = 10_000) -> list[ClaimedJob]:
        """Play a worker that takes ready jobs."""
        ready = [job.id for job in self.jobs(batch_id) if job.state == "ready"][:count]
        with transaction(self.sessions) as session:
            return claim(session, ready, worker="w1", lease_s=60)

    def record(self, claimed: Sequence[ClaimedJob], **more: Any) -> None:
        """Play a worker that answers what it has taken; `more` is what else its answers have."""
        rows = [AnswerRow(job.id, job.attempt, "A cat.", "stop", 7, 3, 2, **more) for job in claimed]
        with transaction(self.sessions) as session:
            record_answers(session, rows, model="demo", revision="rev1")

    def answer(self, batch_id: str, *, count: int = 10_000) -> None:
        self.record(self.claim(batch_id, count=count))

    def fetch(self) -> int:
        """Play a fetcher for whom every download goes well; how many there were."""
        with transaction(self.sessions) as session:
            tasks = images.claim_fetches(session, limit=1000, lease_s=60, per_host=1000, active={})
            for task in tasks:
                images.record_stored(session, task, StoredImage(f"{task.id:064x}", "PNG", 1, 1, 70))
            return len(tasks)

    def result_lines(self, file_id: str | None) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.content(file_id).decode().split("\n")[:-1]]

    def ids(self, file_id: str | None) -> list[str]:
        """The custom_ids in a result file, none where there is no file."""
        return [row["custom_id"] for row in self.result_lines(file_id)] if file_id else []

    def file(self, file_id: str | None) -> FileRow:
        assert file_id
        with transaction(self.sessions) as session:
            found = files.read_file(session, self.tenant, file_id)
        assert found
        return found

    def content(self, file_id: str | None) -> bytes:
        assert file_id
        return self.objects.get(file_key(self.tenant, file_id), max_bytes=10**8)

    def count(self, table: str) -> int:
        with transaction(self.sessions) as session:
            return session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()  # noqa: S608

    def execute(self, statement: str, **values: Any) -> None:
        with transaction(self.sessions) as session:
            session.execute(text(statement), values)

    @staticmethod
    def pixel() -> bytes:
        """The smallest picture."""
        return base64.b64decode(PIXEL.partition(",")[2])

    @staticmethod
    def content_hash(data_url: str) -> str:
        return hashlib.sha256(base64.b64decode(data_url.partition(",")[2])).hexdigest()
