"""`python -m tests.chaos.worker`: a real worker process around an engine that takes its time.

CHAOS_JOB_MS is what a job takes on average. With CHAOS_ENGINE=demo the demo model answers; else a fake does,
which refuses some questions always and others at the first time.
"""

import os
import sys
import time
import zlib
from collections.abc import Callable

from app import telemetry
from app.config import Settings, read_settings
from app.errors import InvalidWork, TransientWork
from workers.engine.base import Answer, Engine, Request, texts
from workers.engine.fake import FakeEngine, echo
from workers.engines import open_one
from workers.pool import open_pool
from workers.serve import serve, worker_name

LEAST_S = 0.002


class Manners:
    """Takes a question's own time, the same in every process, before it is answered."""

    def __init__(self, mean_s: float, ask: Callable[[Request], str | Answer]) -> None:
        self._mean_s = mean_s
        self._ask = ask

    def answer(self, request: Request) -> str | Answer:
        if self._mean_s:
            share = zlib.crc32(_question(request).encode()) % 1000 / 1000
            time.sleep(LEAST_S + 2 * self._mean_s * share)
        return self._ask(request)


class Moods:
    """What the fake says: an echo, unless the question's first word tells otherwise."""

    def __init__(self) -> None:
        self._stumbled: set[str] = set()

    def answer(self, request: Request) -> str:
        question = _question(request)
        if question.startswith("refused "):
            raise InvalidWork("refused", "The fake engine refuses this question.")
        if question.startswith("flaky ") and question not in self._stumbled:
            self._stumbled.add(question)
            raise TransientWork("stumbled", "The fake engine stumbled.")
        return echo(request)


def open_engine(settings: Settings) -> Engine:
    mean_s = float(os.environ["CHAOS_JOB_MS"]) / 1000
    if os.environ["CHAOS_ENGINE"] == "fake":
        manners, revision = Manners(mean_s, Moods().answer), "fake-1"
    else:
        model = open_one(settings)
        manners, revision = Manners(mean_s, lambda request: model.submit(request).result()), model.revision
    return FakeEngine(
        model=settings.served_model, revision=revision, answer=manners.answer, rows=settings.step_rows
    )


def _question(request: Request) -> str:
    return next(reversed(texts(request.turns)), "")


if __name__ == "__main__":
    settings = read_settings()
    telemetry.configure_logs(log_format="json", level="INFO", role="worker", worker=worker_name())
    sys.exit(serve(settings, open_pool(settings, open_engine)))
