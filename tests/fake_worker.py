"""`python -m tests.fake_worker`: a real worker process around the fake engine, for tests that kill it.

A question `wait for PATH` is answered once the file PATH exists; `die` ends the process at once. As answers
are told word by word, `until:PATH` is held back until that file exists, and `die-at:PATH` ends the process
if it does, once. While the file that DIE_BEFORE_ACK names exists, the process dies when a chunk is recorded
but not acknowledged yet.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from celery import signals

from app import telemetry
from app.config import Settings, read_settings
from tests.waiting import eventually
from workers.engine.base import Engine, Request, texts
from workers.engine.fake import FakeEngine, echo, words
from workers.pool import open_pool
from workers.serve import serve, worker_name


def answer(request: Request) -> str:
    question = next(reversed(texts(request.turns)), "")
    if question == "die":
        os._exit(9)
    if question.startswith("wait for "):
        eventually(Path(question.removeprefix("wait for ")).exists, within_s=60)
    return echo(request)


def pieces(text: str) -> Iterator[str]:
    for word in words(text):
        wish, _, path = word.strip().partition(":")
        if wish == "until":
            eventually(Path(path).exists, within_s=60)
        if wish == "die-at" and Path(path).exists():
            Path(path).unlink()
            os._exit(9)
        yield word


def die_before_ack(**_: object) -> None:
    marker = Path(os.environ.get("DIE_BEFORE_ACK", "/nonexistent"))
    if marker.exists():
        marker.unlink()
        os._exit(9)


def open_fake(settings: Settings) -> Engine:
    revision = f"of {settings.model}"
    return FakeEngine(
        model=settings.served_model,
        revision=revision,
        answer=answer,
        pieces=pieces,
        rows=settings.step_rows,
    )


if __name__ == "__main__":
    settings = read_settings()
    signals.task_postrun.connect(die_before_ack)  # Celery acknowledges after this signal
    telemetry.configure_logs(log_format="json", level="INFO", role="worker", worker=worker_name())
    sys.exit(serve(settings, open_pool(settings, open_fake)))
