"""`python -m tests.fake_worker`: a real worker process around the fake engine, for tests that kill it.

A question `wait for PATH` is answered once the file PATH exists; `die` ends the process at once.
"""

import os
import sys
from pathlib import Path

from app import telemetry
from app.config import Settings, read_settings
from tests.waiting import eventually
from workers.engine.base import Engine, Request, texts
from workers.engine.fake import FakeEngine, echo
from workers.serve import serve, worker_name


def answer(request: Request) -> str:
    question = texts(request.turns)[-1]
    if question == "die":
        os._exit(9)
    if question.startswith("wait for "):
        eventually(Path(question.removeprefix("wait for ")).exists, within_s=60)
    return echo(request)


def open_fake(settings: Settings) -> Engine:
    return FakeEngine(model=settings.served_model, answer=answer, rows=settings.step_rows)


if __name__ == "__main__":
    settings = read_settings()
    telemetry.configure_logs(log_format="json", level="INFO", role="worker", worker=worker_name())
    sys.exit(serve(settings, open_fake))
