"""Going on while Postgres is away: a move is tried again until it is through or its time is up."""

from collections.abc import Callable
from typing import TypeVar

import structlog

from app import telemetry
from app.db import is_outage

log = structlog.get_logger()

T = TypeVar("T")
OUTAGE_PAUSE_S = 0.5


def through_outages(
    stage: str, move: Callable[[], T], *, left_s: Callable[[], float], pause: Callable[[float], None]
) -> T:
    """Do a move in Postgres; while that is away, try again as long as time is left."""
    while True:
        try:
            with telemetry.stage(stage):
                return move()
        except Exception as error:
            if not is_outage(error) or left_s() <= 0:
                raise
            log.warning("database_away", stage=stage, left_s=round(left_s(), 1))
            pause(OUTAGE_PAUSE_S)
