"""`python -m bench.repeats_worker`: a worker whose engine never gives the same answer twice."""

import sys
from concurrent.futures import Future
from itertools import count

from app.config import Settings
from bench.queue_lines import MODEL
from bench.queue_worker import main
from workers.engine.base import Answer, Engine, Request, Usage


class NumberingEngine:
    """Answers with the number of the request: two equal answers were one run."""

    model = MODEL
    revision = "numbering"
    number_format = "none"

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
    sys.exit(main(open_numbering))
