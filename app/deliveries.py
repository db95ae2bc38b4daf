"""Sends events to the endpoints that want them, again and again for a day, each endpoint for itself."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

import structlog

from app import telemetry, tracing
from app.db import Sessions, transaction
from app.errors import WorkError
from app.persistence import TRIPS_AFTER, next_try, rest
from app.posting import TOTAL_S, Posted, Poster
from app.store import events, webhooks
from app.store.events import Task
from app.webhooks import send

log = structlog.get_logger()

THREADS = 32
# So many threads at most does a slow endpoint hold, and a tenant with many of them.
PER_ENDPOINT, PER_TENANT = 2, 8
# Longer than a try may take with name servers that are slow: who dies meanwhile sends it once more.
LEASE_S = 4 * TOTAL_S
GONE = 410


class Deliveries:
    """Several processes may run at once. A message may arrive twice, always with the same `webhook-id`."""

    def __init__(
        self, *, sessions: Sessions, poster: Poster, spread: Callable[[], float] = random.random
    ) -> None:
        self._sessions = sessions
        self._poster = poster
        self._spread = spread
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook")
        self._changed = Condition()
        self._active: Counter[str] = Counter()
        for outcome in ("delivered", "retried", "failed"):
            telemetry.WEBHOOKS.labels(outcome)  # before the first: Prometheus sees increases only

    def step(self) -> bool:
        """Claim and start what there is room for; whether any was due."""
        with self._changed:
            active = dict(self._active)
        room = THREADS - sum(active.values())
        if room <= 0:
            return False
        with transaction(self._sessions) as session:
            claimed = events.claim(
                session,
                limit=room,
                per_endpoint=PER_ENDPOINT,
                per_tenant=PER_TENANT,
                lease_s=LEASE_S,
                trips_after=TRIPS_AFTER,
                active=active,
            )
        for task in claimed:
            with self._changed:
                self._active[task.endpoint_id] += 1
            self._pool.submit(self._run, task)
        return bool(claimed)

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing is being sent; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._active, timeout_s)

    def close(self) -> None:
        """Let what is being sent end."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, task: Task) -> None:
        try:
            with tracing.follow(
                "deliver webhook",
                task.trace,
                kind="client",
                event=task.event_id,
                type=task.type,
                attempt=task.attempt,
            ):
                self._deliver(task)
        except Exception:  # the top of a thread's work: the lease brings the message back
            telemetry.LOOP_FAULTS.labels("webhooks").inc()
            log.exception("delivery_unrecorded", delivery=task.id)
        finally:
            with self._changed:
                self._active[task.endpoint_id] -= 1
                if not self._active[task.endpoint_id]:
                    del self._active[task.endpoint_id]
                self._changed.notify_all()

    def _deliver(self, task: Task) -> None:
        with transaction(self._sessions) as session:
            signing = webhooks.read_secrets(session, task.endpoint_id)
        if not signing:
            return  # its endpoint was deleted, and the message with it
        try:
            posted = send(self._poster, task.url, task.body, signing)
        except WorkError as error:
            self._failed(task, f"{error.code}: {error.message}", None)
            return
        if posted.taken:
            with transaction(self._sessions) as session:
                events.note_delivered(session, task, posted.status)
            self._told(task, "delivered", posted.status)
        else:
            self._failed(task, f"answered {posted.status}", posted)

    def _failed(self, task: Task, error: str, posted: Posted | None) -> None:
        gone = posted is not None and posted.status == GONE
        wanted_s = posted.retry_after_s if posted else None
        again_s = next_try(task.tries, age_s=task.age_s, spread=self._spread(), retry_after_s=wanted_s)
        with transaction(self._sessions) as session:
            events.note_failed(
                session,
                task,
                status_code=posted.status if posted else None,
                error=error,
                again_s=None if gone else again_s,
                rest_s=None if gone else rest(task.failures + 1),
            )
        outcome = "failed" if gone or again_s is None else "retried"
        self._told(task, outcome, posted.status if posted else None)

    def _told(self, task: Task, outcome: str, status: int | None) -> None:
        telemetry.WEBHOOKS.labels(outcome).inc()
        tracing.note(outcome=outcome, **({} if status is None else {"http__response__status_code": status}))
        log.info(
            f"webhook_{outcome}",
            delivery=task.id,
            endpoint=task.endpoint_id,
            event_id=task.event_id,
            type=task.type,
            attempt=task.attempt,
            status=status,
        )
