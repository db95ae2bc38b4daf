"""Raises the alarm for runs of sweeps that stand still."""

import structlog

from app import telemetry
from app.db import Sessions, transaction
from app.store import events, sweep_runs

log = structlog.get_logger()

OPEN = ("waiting", "listing", "checking", "submitting", "running")


class Stalls:
    """All open runs per `step`; one that gets on again can be told of anew."""

    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions
        for change in ("new", "changed", "unchanged", "deleted"):
            telemetry.SWEEP_IMAGES.labels(change)  # before the first: Prometheus sees increases only

    def step(self) -> bool:
        """Tell of those that have begun to stand still; always False: the next look comes after a pause."""
        with transaction(self._sessions) as session:
            stalled = sweep_runs.take_stalled(session)
            for run in stalled:
                data = {"id": run.id, "sweep_id": run.sweep_id, "name": run.name, "state": run.state}
                events.tell(session, run.tenant_id, "sweep.run.stalled", data)
            telemetry.SWEEP_STALLED.set(sweep_runs.count_stalled(session))
            found = sweep_runs.count_open(session)
        for state in OPEN:
            telemetry.SWEEP_OPEN.labels(state).set(found.get(state, 0))
        for run in stalled:
            log.warning("sweep_run_stalled", run=run.id, sweep=run.sweep_id, state=run.state)
        return False
