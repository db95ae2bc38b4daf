"""`python -m bench.repeats_worker`: a worker whose engine never gives the same answer twice."""

import sys
from concurrent.futures import Future
from itertools import count

from app import telemetry
from app.config import Settings, read_settings
from bench.queue_lines import MODEL
from workers.engine.base import Answer, Engine, Request, Usage
from workers.pool import open_pool
from workers.serve import serve, worker_name


class NumberingEngine:
    """Answers with the number of the request: two equal answers were one run."""

    model = MODEL
    revision = "numbering"

    def __init__(self) -> None:
        self._numbers = count()

    def submit(self, request: Request) -> Future[Answer]:
        del request
        answered: Future[Answer] = Future()
        answered.set_result(Answer(f"answer {next(self._numbers)}", "stop", Usage(320, 3)))
        return answered

    def close(self) -> None:
        return


def open_numbering(_: Settings) -> Engine:
    return NumberingEngine()


if __name__ == "__main__":
    settings = read_settings()
    telemetry.configure_logs(log_format="json", level="INFO", role="worker", worker=worker_name())
    sys.exit(serve(settings, open_pool(settings, open_numbering)))
