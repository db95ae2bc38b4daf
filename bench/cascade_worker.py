"""`python -m bench.cascade_worker`: a real worker that notes on which thread each model runs."""

import os
import sys
import threading
from pathlib import Path

from app.config import Settings
from bench.queue_worker import main
from workers.engine.base import Engine
from workers.engines import open_one

THREAD = "engine"  # as workers.engine.transformers names the one that owns a model
FOLDER = "VQUEUE_BENCH_THREADS"


def open_noted(settings: Settings) -> Engine:
    """The engine; a file of its name then holds the system's number of its thread."""
    before = set(threading.enumerate())
    engine = open_one(settings)
    (owner,) = [one for one in threading.enumerate() if one.name == THREAD and one not in before]
    Path(os.environ[FOLDER], settings.served_model).write_text(str(owner.native_id))
    return engine


if __name__ == "__main__":
    sys.exit(main(open_noted))
