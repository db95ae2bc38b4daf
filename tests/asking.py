"""Jobs for real workers around the fake engine: asked, sent, and answered."""

from collections.abc import Sequence
from pathlib import Path

from app.config import Settings
from app.dispatch import Dispatcher
from app.states import JobState
from tests.processes import Process
from tests.rows import Rows


def worker(settings: Settings, folder: Path, name: str = "worker") -> Process:
    return Process("tests.fake_worker", settings, folder / f"{name}.log")


def ask(
    rows: Rows,
    settings: Settings,
    question: str,
    count: int = 1,
    *,
    model: str | None = None,
    priority: str = "standard",
) -> list[int]:
    ids = rows.add_jobs(count, model=model or settings.served_model, priority=priority)
    prompt = '{"turns": [{"role": "user", "parts": [{"text": "%s"}]}]}' % question  # noqa: UP031 - braces
    rows.run("UPDATE jobs SET prompt = :prompt WHERE id = ANY(:ids)", prompt=prompt, ids=ids)
    return ids


def completed(rows: Rows, ids: Sequence[int]) -> bool:
    states = rows.states()
    return all(states[job_id] == JobState.COMPLETED for job_id in ids)


def dispatched(dispatcher: Dispatcher, rows: Rows, ids: Sequence[int]) -> bool:
    """One turn of the dispatcher; whether all jobs are answered."""
    dispatcher.reap()
    dispatcher.send()
    return completed(rows, ids)
