"""A sweep's whole world for tests: a source that changes, its runs, and whoever answers what they ask."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text

from app.answer_keys import CacheMode
from app.batches import Batches, default_brake
from app.config import Settings
from app.db import transaction
from app.finalize import Finalize
from app.ingest import Ingest
from app.limits import Limits
from app.store import images, sweep_runs
from app.store.images import StoredImage
from app.store.jobs import claim
from app.store.records import AnswerRow, FailureRow, record_answers, record_failures
from app.store.sweep_runs import RunRow
from app.store.sweeps import SweepRow
from app.sweep import Sweeper
from app.sweeps.desk import Sweeps
from app.sweeps.due import Due
from app.sweeps.runs import Runs, make_runs
from app.sweeps.sources import Sources
from app.tables.checks import table_checks
from tests.desk import Desk

QUESTIONS = ({"name": "colour", "ask": "Which colour?"}, {"name": "shape", "ask": "Which shape?"})
DONE = ("completed", "failed", "cancelled")


class World:
    """`prefix` is where the source's pictures lie. A picture's content is its text, an answer names it."""

    def __init__(self, desk: Desk, *, prefix: str, **changes: Any) -> None:
        bucket = desk.objects.bucket
        allowed = {"s3_source_buckets": (bucket,), "sweep_buckets": (bucket,), "model_name": "demo"}
        self.desk = desk
        self.settings: Settings = desk.settings.model_copy(update={**allowed, **changes})
        self.prefix = prefix
        self.place = f"s3://{bucket}/{prefix}"
        self.says = "it is"
        self.fails: frozenset[str] = frozenset()  # custom_ids that get no answer
        self.runs: Runs = make_runs(self.settings, sessions=desk.sessions, objects=desk.objects)
        self.due = Due(sessions=desk.sessions)
        limits = Limits(sessions=desk.sessions, backlog_max_jobs=10**8, disk_min_free_bytes=0, data_dir=None)
        batches = Batches(
            sessions=desk.sessions,
            limits=limits,
            brake=default_brake(self.settings),
            tables=table_checks(self.settings),
            cache=CacheMode.ON,
            models=self.settings.model_names,
        )
        sources = Sources(objects=desk.objects, settings=self.settings)
        self.sweeps = Sweeps(sessions=desk.sessions, batches=batches, sources=sources, settings=self.settings)
        works = {"sessions": desk.sessions, "objects": desk.objects, "settings": self.settings}
        self._ingest = Ingest(**works)
        self._finalize = Finalize(**works)
        self._sweeper = Sweeper(sessions=desk.sessions)

    def close(self) -> None:
        self._ingest.close()

    def put(self, name: str, content: str) -> None:
        self.desk.objects.put(f"{self.prefix}{name}", content.encode(), content_type="image/png")

    def remove(self, name: str) -> None:
        self.desk.objects.delete(f"{self.prefix}{name}")

    def create(self, **changes: Any) -> SweepRow:
        wish = {
            "name": "nightly",
            "source": {"kind": "bucket", "prefix": self.place, "images_only": True},
            "questions": list(QUESTIONS),
            "policy_version": "1",
            "model": "demo",
            "body": {},
            "cron": None,
            "zone": "UTC",
            "destination": None,
            "completion_window": "24h",
            "batch": {},
            "alert_after_s": 3600,
        }
        return self.sweeps.create(self.desk.tenant, wish | changes)

    def run(self, sweep: SweepRow) -> RunRow:
        """Run it now, to the end."""
        return self.finish(sweep, self.sweeps.run(self.desk.tenant, sweep.id).id)

    def finish(self, sweep: SweepRow, run_id: str) -> RunRow:
        for _ in range(60):
            self.turn()
            run = self.read(sweep, run_id)
            if run.state in DONE:
                return run
        raise AssertionError(self.read(sweep, run_id))

    def turn(self) -> None:
        """What every process does once."""
        self.no_waiting()
        self.runs.step()
        self._ingest.step()
        self.fetch()
        self.answer()
        self._sweeper.step()
        self._finalize.step()

    def no_waiting(self) -> None:
        """What the clock would do: the pause of each run is over."""
        self.desk.execute("UPDATE sweep_runs SET lease_until = now() WHERE lease_until IS NOT NULL")

    def read(self, sweep: SweepRow, run_id: str) -> RunRow:
        with transaction(self.desk.sessions) as session:
            found = sweep_runs.read_run(session, sweep.id, run_id)
        assert found
        return found

    def fetch(self) -> None:
        """Play the fetcher: a picture's content hash is that of what lies there."""
        with transaction(self.desk.sessions) as session:
            tasks = images.claim_fetches(session, limit=1000, lease_s=60, per_host=1000, active={})
        for task in tasks:
            key = task.ref.removeprefix(f"s3://{self.desk.objects.bucket}/")
            data = self.desk.objects.get(key, max_bytes=1000)
            stored = StoredImage(hashlib.sha256(data).hexdigest(), "PNG", 1, 1, len(data))
            with transaction(self.desk.sessions) as session:
                images.record_stored(session, task, stored)

    def answer(self) -> None:
        """Play the workers: whatever is ready is answered, but for what `fails`."""
        statement = "SELECT id, custom_id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 5000"
        with transaction(self.desk.sessions) as session:
            names = {row.id: row.custom_id for row in session.execute(text(statement))}
            claimed = claim(session, list(names), worker="w1", lease_s=60)
            good = [job for job in claimed if names[job.id] not in self.fails]
            rows = [
                AnswerRow(job.id, job.attempt, f"{self.says} {self.content(names[job.id])}", "stop", 7, 3, 2)
                for job in good
            ]
            record_answers(session, rows, model="demo", revision="rev1")
        bad = [job.id for job in claimed if names[job.id] in self.fails]
        self.fail(bad)

    def content(self, custom_id: str) -> str:
        """What the picture shows that a job is about."""
        statement = """
            SELECT content_hash FROM jobs j JOIN images i ON i.id = j.image_ids[1]
            WHERE custom_id = :id ORDER BY j.id DESC LIMIT 1"""
        with transaction(self.desk.sessions) as session:
            return session.execute(text(statement), {"id": custom_id}).scalar_one()[:8]

    def fail(self, job_ids: Sequence[int]) -> None:
        with transaction(self.desk.sessions) as session:
            rows = session.execute(
                text("SELECT id, attempt FROM jobs WHERE id = ANY(:ids)"), {"ids": list(job_ids)}
            ).all()
            record_failures(session, [FailureRow(row.id, row.attempt, "bad_prompt", "No.") for row in rows])

    def asked(self, run: RunRow) -> list[str]:
        """The custom_ids of what a run has asked."""
        with transaction(self.desk.sessions) as session:
            rows = session.execute(
                text("SELECT custom_id FROM jobs WHERE batch_id = ANY(:ids) ORDER BY custom_id"),
                {"ids": list(run.batch_ids)},
            )
            return list(rows.scalars())

    def events(self) -> list[Mapping[str, Any]]:
        """What was told to whoever listens."""
        with transaction(self.desk.sessions) as session:
            return list(
                session.execute(text("SELECT body FROM webhook_events ORDER BY created_at")).scalars()
            )
