"""Makes runs of the sweeps whose time has come: one per due time, however many dispatchers look."""

from collections.abc import Callable
from datetime import datetime

import structlog
from sqlalchemy.orm import Session

from app.db import Sessions, transaction
from app.ids import new_run_id
from app.store import sweep_runs, sweeps
from app.sweeps.cron import latest_due, next_due

log = structlog.get_logger()

SCHEDULED = "scheduled"


class Due:
    """One sweep per `step`.

    A clock that was put back makes nothing twice: a due time has one run. Of due times that were missed (no
    dispatcher, a clock that leapt) the newest runs; `backfill` makes the others, where they are wanted.
    """

    def __init__(self, *, sessions: Sessions, clock: Callable[[Session], datetime] = sweeps.now) -> None:
        self._sessions = sessions
        self._clock = clock
        self._seen: datetime | None = None

    def step(self) -> bool:
        """Make the run of one sweep that is due; False where none is."""
        with transaction(self._sessions) as session:
            now = self._clock(session)
            if self._seen is None or now < self._seen:
                _mend(session, now)
            self._seen = now
            due = sweeps.take_due(session, now)
            if due is None:
                return False
            when = latest_due(due.cron, due.zone, due.next_due_at, now)
            made = sweep_runs.insert_run(session, new_run_id(), due.id, SCHEDULED, when)
            sweeps.set_next_due(session, due.id, next_due(due.cron, due.zone, when))
        if made:
            log.info("sweep_due", sweep=due.id, due=when.isoformat())
        return True


def _mend(session: Session, now: datetime) -> None:
    """A clock that was ahead for a while has put due times off: back to the first that is still to come."""
    for sweep in sweeps.lock_later(session, now):
        first = next_due(sweep.cron, sweep.zone, now)
        if first is not None and first < sweep.next_due_at:
            sweeps.set_next_due(session, sweep.id, first)
