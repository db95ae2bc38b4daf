"""The worker process: loads its models once and serves them."""

import os
import sys

import structlog

from app import telemetry
from app.config import Settings, read_settings
from app.errors import FatalWork, TransientWork
from workers.engines import open_one
from workers.pool import EnginePool, open_pool
from workers.serve import serve, worker_name

log = structlog.get_logger()


def open_or_exit(settings: Settings) -> EnginePool:
    """The engines. A model that is refused ends the process with os.EX_CONFIG: a restart changes nothing.

    A remote server that does not answer ends it with os.EX_TEMPFAIL.
    """
    try:
        return open_pool(settings, open_one)
    except FatalWork as error:
        log.critical("model_refused", code=error.code, reason=error.message)
        sys.exit(os.EX_CONFIG)
    except TransientWork as error:
        log.error("engine_unavailable", code=error.code, reason=error.message)
        sys.exit(os.EX_TEMPFAIL)


def main() -> None:
    settings = read_settings()
    telemetry.configure_logs(
        log_format=settings.log_format, level=settings.log_level, role="worker", worker=worker_name()
    )
    sys.exit(serve(settings, open_or_exit(settings)))


if __name__ == "__main__":
    main()
