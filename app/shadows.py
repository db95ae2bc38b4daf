"""Shadow mode: a share of what one model has answered is asked of another too, and the answers are compared.

Nobody waits for a shadow: it begins when a batch has ended, as a batch of a tenant of its own at the lowest
priority, so that no customer sees, pays or waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from app import telemetry
from app.answer_keys import CacheMode
from app.db import Sessions, transaction
from app.ids import new_batch_id, new_tenant_id
from app.repeats import hash_request
from app.shadow_list import Shadow
from app.states import JobState, Priority
from app.store import shadows as store
from app.store.batches import NewBatch, insert_batch, lock_submission
from app.store.keys import ensure_tenant
from app.store.shadows import Differing, Shadowed, Total

log = structlog.get_logger()

WINDOW_S = 86_400
# While so many jobs of shadows are open no more are made: they count against the limit over which customers
# are refused (VQUEUE_BACKLOG_MAX_JOBS, five million by default).
MOST_OPEN = 100_000


@dataclass(frozen=True)
class ShadowReport:
    """Two models over the same questions; shares of all pairs, seconds of model time an answer.

    None where there is nothing to tell yet. `open` batches are still being answered.
    """

    model: str
    other: str
    batches: int
    open: int
    pairs: int
    alike: float | None
    exact: float | None
    model_s: float | None
    other_s: float | None


@dataclass(frozen=True)
class Report:
    totals: Sequence[ShadowReport]
    differences: Sequence[Differing]


class TenantTaken(Exception):
    """The tenant that is to have the shadows is a customer's, who would see what others have asked."""


class Shadows:
    """One batch made or compared per `step`; several dispatchers may run it at once.

    With no `shadows` it still compares and deletes those that were made before.
    """

    def __init__(
        self, *, sessions: Sessions, shadows: Sequence[Shadow], tenant: str, most_open: int = MOST_OPEN
    ) -> None:
        self._sessions = sessions
        self._most_open = most_open
        self._shadows = shadows
        self._tenant = tenant

    def step(self) -> bool:
        """False when there was nothing to do. Raises TenantTaken, after all else is done."""
        settled = [self._delete(), self._compare()]
        made = [self._make(shadow) for shadow in self._shadows]
        return any(settled) or any(made)

    def _make(self, shadow: Shadow) -> bool:
        with transaction(self._sessions) as session:
            found = store.find_unshadowed(session, shadow, own_tenant=self._tenant)
            if found is None or store.is_full(session, most_open=self._most_open):
                return False
            tenant_id = ensure_tenant(session, new_id=new_tenant_id(), name=self._tenant)
            if store.is_customer(session, tenant_id):
                raise TenantTaken(f"{self._tenant}: name another one in VQUEUE_SHADOW_TENANT")
            lock_submission(session, tenant_id, f"{found.id} {shadow.other}")
            if store.is_shadowed(session, found.id, shadow.other):
                return True
            new_id = _insert(session, shadow, found, tenant_id) if found.sampled else None
            store.insert_shadow(session, shadow, found.id, new_id)
        log.info("shadow_made", batch=found.id, shadow=new_id, other=shadow.other)
        return True

    def _compare(self) -> bool:
        with transaction(self._sessions) as session:
            pairing = store.take_ended(session)
            if pairing is None:
                return False
            found = store.compare(session, pairing)
            store.note_compared(session, pairing, found)
        names = (pairing.model, pairing.other)
        telemetry.SHADOW_ANSWERS.labels(*names, "yes").inc(found.alike)
        telemetry.SHADOW_ANSWERS.labels(*names, "no").inc(found.pairs - found.alike)
        telemetry.SHADOW_MODEL_SECONDS.labels(*names, "model").inc(found.model_s)
        telemetry.SHADOW_MODEL_SECONDS.labels(*names, "other").inc(found.other_s)
        log.info("shadow_compared", batch=pairing.batch_id, **vars(found))
        return True

    def _delete(self) -> bool:
        with transaction(self._sessions) as session:
            gone = store.doom_orphans(session)
            stopped = store.stop_vain(session)
        for batch_id in gone:
            log.info("shadow_deleted", shadow=batch_id)
        for batch_id in stopped:
            log.info("shadow_stopped", shadow=batch_id)
        return bool(gone or stopped)


def read_report(sessions: Sessions, *, days: int, show: int) -> Report:
    """What the last days' shadows came to, and up to `show` answers that differ."""
    with transaction(sessions) as session:
        totals = store.read_totals(session, days=days)
        differences = store.read_differences(session, days=days, limit=show) if show else []
    return Report([_report(total) for total in totals], differences)


def _report(total: Total) -> ShadowReport:
    found = total.found

    def per(amount: float, count: int) -> float | None:
        return amount / count if count else None

    return ShadowReport(
        total.model,
        total.other,
        total.batches,
        total.open,
        found.pairs,
        alike=per(found.alike, found.pairs),
        exact=per(found.exact, found.pairs),
        model_s=per(found.model_s, found.timed),
        other_s=per(found.other_s, found.timed),
    )


def _insert(session: Session, shadow: Shadow, found: Shadowed, tenant_id: str) -> str:
    """The batch is filled by ingest, as a retry's is."""
    batch = NewBatch(
        id=new_batch_id(),
        tenant_id=tenant_id,
        endpoint=found.endpoint,
        input_file_id=found.input_file_id,
        completion_window=f"{WINDOW_S // 3600}h",
        window_s=WINDOW_S,
        metadata=None,
        output_expires_after_s=None,
        request_hash=hash_request({"shadow_of": found.id, "other": shadow.other}),
        idempotency_key=None,
        priority=Priority.BACKGROUND,
        retry_of=found.id,
        retry_states=[JobState.COMPLETED],
        cache=CacheMode.OFF,
    )
    return insert_batch(session, batch).id
