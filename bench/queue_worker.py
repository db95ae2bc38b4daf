"""`python -m bench.queue_worker`: a real worker process around the instant engine."""

import sys

from app import telemetry
from app.config import Settings, read_settings
from bench.queue_engine import InstantEngine
from workers.engine.base import Engine
from workers.pool import OpenEngine, open_pool
from workers.serve import serve, worker_name


def open_instant(_: Settings) -> Engine:
    return InstantEngine()


def main(open_one: OpenEngine) -> int:
    """Be a worker around such engines; its exit status."""
    settings = read_settings()
    telemetry.configure_logs(log_format="json", level="INFO", role="worker", worker=worker_name())
    return serve(settings, open_pool(settings, open_one))


if __name__ == "__main__":
    sys.exit(main(open_instant))
