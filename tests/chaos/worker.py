"""`python -m tests.chaos.worker`: a real worker process around a fake engine with the manners of a model.

It answers within CHAOS_JOB_MS on average, refuses some questions always and others at the first time.
"""

import os
import sys
import time
import zlib

from app import telemetry
from app.config import Settings, read_settings
from app.errors import InvalidWork, TransientWork
from workers.engine.base import Engine, Request, texts
from workers.engine.fake import FakeEngine, echo
from workers.pool import open_pool
from workers.serve import serve, worker_name

LEAST_S = 0.002


class Manners:
    """What the engine says, and how long it takes: a question's own time, the same in every process."""

    def __init__(self, mean_s: float) -> None:
        self._mean_s = mean_s
        self._stumbled: set[str] = set()

    def answer(self, request: Request) -> str:
        question = next(reversed(texts(request.turns)), "")
        if self._mean_s:
            time.sleep(LEAST_S + 2 * self._mean_s * (zlib.crc32(question.encode()) % 1000) / 1000)
        if question.startswith("refused "):
            raise InvalidWork("refused", "The fake engine refuses this question.")
        if question.startswith("flaky ") and question not in self._stumbled:
            self._stumbled.add(question)
            raise TransientWork("stumbled", "The fake engine stumbled.")
        return echo(request)


def open_fake(settings: Settings) -> Engine:
    manners = Manners(float(os.environ.get("CHAOS_JOB_MS", "50")) / 1000)
    return FakeEngine(model=settings.served_model, answer=manners.answer, rows=settings.step_rows)


if __name__ == "__main__":
    settings = read_settings()
    telemetry.configure_logs(log_format="json", level="INFO", role="worker", worker=worker_name())
    sys.exit(serve(settings, open_pool(settings, open_fake)))
