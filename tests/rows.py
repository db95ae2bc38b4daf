"""Rows for tests of store, dispatcher and runner: a tenant, its batches, images and jobs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from app.db import Sessions, transaction
from app.store import jobs, records
from app.store.images import StoredImage, keep_image

PROMPT = {"turns": [{"role": "user", "parts": [{"image": 0}, {"text": "What colour is it?"}]}]}
TEXT_PROMPT = {"turns": [{"role": "user", "parts": [{"text": "Hello?"}]}]}


@dataclass
class Rows:
    """Writes rows straight to the tables, in any state a test wants."""

    sessions: Sessions
    tenant: str = "tenant_a"
    _lines: dict[str, int] = field(default_factory=dict)

    def add_tenant(self, name: str = "tenant_a") -> str:
        self.run("INSERT INTO tenants (id, name) VALUES (:id, :id) ON CONFLICT DO NOTHING", id=name)
        return name

    def add_batch(self, batch_id: str = "batch_1", *, status: str = "in_progress", total: int = 0) -> str:
        self.add_tenant(self.tenant)
        self.run(
            """
            INSERT INTO batches (id, tenant_id, status, endpoint, input_file_id, completion_window,
                                 request_hash, model, total, ingested_at, expires_at)
            VALUES (:id, :tenant, :status, '/v1/chat/completions', 'file-x', '24h', :id, 'demo', :total,
                    CASE WHEN :status <> 'validating' THEN now() END, now() + interval '1 day')
            """,
            id=batch_id,
            tenant=self.tenant,
            status=status,
            total=total,
        )
        return batch_id

    def add_jobs(self, count: int, *, batch_id: str | None = None, **columns: Any) -> list[int]:
        """Jobs of a batch (its total grows with them) or direct ones; `columns` override the defaults."""
        self.add_tenant(self.tenant)
        return [self._add_job(batch_id, columns) for _ in range(count)]

    def add_image(self, content_hash: str = "a" * 64, *, width: int = 64, height: int = 64) -> int:
        self.add_tenant(self.tenant)
        stored = StoredImage(content_hash, "PNG", width, height, 100)
        with transaction(self.sessions) as session:
            return keep_image(session, self.tenant, content_hash, stored)

    def claim(self, job_ids: Sequence[int]) -> None:
        with transaction(self.sessions) as session:
            jobs.claim(session, job_ids, worker="w1", lease_s=60)

    def complete(self, *job_ids: int, text: str = "red") -> None:
        """Play a worker that answers jobs it has not tried before."""
        self.claim(job_ids)
        rows = [records.AnswerRow(job_id, 1, text, "stop", 10, 2, 3) for job_id in job_ids]
        with transaction(self.sessions) as session:
            records.record_answers(session, rows, model="demo", revision="r1")

    def fail(self, *job_ids: int, code: str = "bad_prompt") -> None:
        """Play a worker for whom jobs fail that it has not tried before."""
        self.claim(job_ids)
        with transaction(self.sessions) as session:
            records.record_failures(
                session, [records.FailureRow(job_id, 1, code, f"{code}!") for job_id in job_ids]
            )

    def run(self, statement: str, **values: Any) -> None:
        with transaction(self.sessions) as session:
            session.execute(text(statement), values)

    def one(self, statement: str, **values: Any) -> Any:
        """The only value of the only row."""
        with transaction(self.sessions) as session:
            return session.execute(text(statement), values).scalar_one()

    def all(self, statement: str, **values: Any) -> Sequence[Any]:
        with transaction(self.sessions) as session:
            return session.execute(text(statement), values).scalars().all()

    def table(self, statement: str, **values: Any) -> Sequence[Any]:
        """All rows."""
        with transaction(self.sessions) as session:
            return session.execute(text(statement), values).all()

    def states(self) -> dict[int, str]:
        with transaction(self.sessions) as session:
            found = session.execute(text("SELECT id, state FROM jobs ORDER BY id")).all()
            return {row.id: row.state for row in found}

    def counts(self, batch_id: str = "batch_1") -> tuple[int, int, int]:
        """(total, completed, failed) as a poll would see them."""
        with transaction(self.sessions) as session:
            row = session.execute(
                text("SELECT total, completed, failed FROM batches WHERE id = :id"), {"id": batch_id}
            ).one()
            return row.total, row.completed, row.failed

    def _add_job(self, batch_id: str | None, columns: dict[str, Any]) -> int:
        line = self._next_line(batch_id) if batch_id else None
        values = {
            "tenant_id": self.tenant,
            "batch_id": batch_id,
            "line": line,
            "custom_id": f"r{line}" if batch_id else None,
            "model": "demo",
            "state": "ready",
            "image_ids": [],
            **columns,
        }
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        job_id = self.one(
            f"INSERT INTO jobs ({names}, prompt, params) VALUES ({marks}, :prompt, :params) RETURNING id",  # noqa: S608 - names of columns
            **values,
            prompt='{"turns": [{"role": "user", "parts": [{"text": "Hello?"}]}]}',
            params='{"max_tokens": 8}',
        )
        if batch_id:
            self.run("UPDATE batches SET total = total + 1 WHERE id = :id", id=batch_id)
        return job_id

    def _next_line(self, batch_id: str) -> int:
        self._lines[batch_id] = self._lines.get(batch_id, 0) + 1
        return self._lines[batch_id]


@contextmanager
def stuck(rows: Rows, table: str, batch_id: str, column: str = "batch_id") -> Iterator[None]:
    """While the block runs, no row of this batch in `table` can be changed or deleted: a fault of ours."""
    rows.run(
        f"""
        CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF OLD.{column} = '{batch_id}' THEN RAISE 'stuck'; END IF;
           RETURN coalesce(NEW, OLD); END $$
        """
    )
    rows.run(f"CREATE TRIGGER stuck BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION stuck()")
    try:
        yield
    finally:
        rows.run("DROP FUNCTION stuck CASCADE")
