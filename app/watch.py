"""Watches what runs: measures pace, tells of it, stops batches that fail wholesale, and meters usage."""

import structlog

from app import standing, telemetry
from app.db import Sessions, transaction
from app.errors import LineError
from app.pace import next_pace
from app.standing import Standing
from app.store import events, usage
from app.store import watch as store
from app.store.watch import Commonest, Failing
from app.troubled import Troubled

log = structlog.get_logger()

TOO_MANY_FAILURES = "too_many_failures"
# Rows of one transaction, and how many of these a look has at most: what is left waits for the next look.
BLOCK_ROWS, MOST_BLOCKS = 5_000, 20
STILL_TOLD_S = 600.0  # a standstill is logged from here on, before the alarm of docs/alerts.md rings
METERING = "metering"  # as one of those that rest from a fault


class Watch:
    """One look at all of it per `step`. Several may run at once: each thing is done once."""

    def __init__(self, *, sessions: Sessions, every_s: float, block_rows: int = BLOCK_ROWS) -> None:
        self._sessions = sessions
        self._every_s = every_s
        self._block_rows = block_rows
        self._troubled = Troubled("watch")
        self._standing = Standing()
        self._told: set[str] = set()

    def step(self) -> bool:
        """Always False: the next look is for later."""
        self._measure()
        self._tell()
        self._judge()
        self._brake()
        self._meter()
        return False

    def _measure(self) -> None:
        with transaction(self._sessions) as session:
            samples = store.read_samples(session, older_than_s=self._every_s / 2)
            paces = [
                next_pace(one.pace, jobs=one.ended - one.pace_ended, seconds=one.seconds) for one in samples
            ]
            if samples:
                store.note_paces(session, list(zip(samples, paces, strict=True)))

    def _tell(self) -> None:
        with transaction(self._sessions) as session:
            events.tell_progress(session)

    def _judge(self) -> None:
        """Set the gauges of batches that stand still or will be late; name each of the first once."""
        with transaction(self._sessions) as session:
            now, batches = store.read_open(session)
        still = self._standing.look(batches, now)
        for status, seconds in standing.longest(batches, still).items():
            telemetry.BATCH_STILL_SECONDS.labels(status).set(seconds)
        telemetry.BATCHES_AT_RISK.set(sum(standing.is_late(batch, now) for batch in batches))
        stuck = {batch_id for batch_id, for_ in still.items() if for_.total_seconds() >= STILL_TOLD_S}
        for batch_id in sorted(stuck - self._told):
            log.warning("batch_stands_still", batch=batch_id, seconds=round(still[batch_id].total_seconds()))
        self._told = stuck

    def _brake(self) -> None:
        with transaction(self._sessions) as session:
            failing = store.find_failing(session)
        resting = self._troubled.ids
        for batch in failing:
            if batch.batch_id not in resting:
                with self._troubled.sparing(batch.batch_id):
                    self._stop(batch)

    def _meter(self) -> None:
        """Last and spared: who pays what must not keep a batch from being stopped."""
        if METERING in self._troubled.ids:
            return
        with self._troubled.sparing(METERING):
            for meter in (usage.meter_batches, usage.meter_jobs):
                for _ in range(MOST_BLOCKS):
                    with transaction(self._sessions) as session:
                        rows = meter(session, limit=self._block_rows)
                    if rows < self._block_rows:
                        break

    def _stop(self, batch: Failing) -> None:
        with transaction(self._sessions) as session:
            error = stop_error(batch, store.read_commonest(session, batch.batch_id))
            stopped = store.stop_batch(session, batch.batch_id, error)
        if stopped:
            log.warning("batch_stopped", batch=batch.batch_id, failed=batch.failed)


def stop_error(batch: Failing, commonest: Commonest) -> LineError:
    """What the owner of a stopped batch is told."""
    if batch.failed >= batch.share * batch.jobs:
        failed, of, whose = batch.failed, batch.jobs, "requests"
    else:
        failed, of, whose = batch.ran_failed, batch.ran, "requests that had run"
    return LineError(
        TOO_MANY_FAILURES,
        f"Stopped: {failed:,} of the {of:,} {whose} had failed "
        f"({failed / of:.0%}; the limit is {batch.share:.0%}). "
        f"The commonest error, {commonest.jobs:,} times: {commonest.code}: {commonest.message}",
    )
