"""`python -m bench.sweep_worker`: a worker whose engine names colours and takes a set time for each."""

import sys
import time

from app.config import Settings
from bench.queue_lines import MODEL
from bench.queue_worker import main
from bench.sweep_pictures import colour_in
from workers.engine.base import Engine, Request
from workers.engine.fake import FakeEngine

REQUEST_S = 0.001  # of the model's time: what is saved can be told in seconds as well as in requests


def look(request: Request) -> str:
    time.sleep(REQUEST_S)
    return colour_in(request.images[0].load())


def open_looking(_: Settings) -> Engine:
    return FakeEngine(model=MODEL, answer=look)


if __name__ == "__main__":
    sys.exit(main(open_looking))
