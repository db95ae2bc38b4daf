"""What tenants are told of, and to whom it is on its way: an outbox, and then the log of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.paging import read_page

QUARTERS = 4  # of a batch: events of its progress

# In one statement: an event that somebody wants, and its way to each of them.
TELL = """
    INSERT INTO webhook_events (id, tenant_id, type, body)
    SELECT event.id, event.tenant_id, event.type, json_build_object(
               'id', event.id, 'object', 'event', 'created_at', floor(extract(epoch FROM now()))::bigint,
               'type', event.type, 'data', event.data)
    FROM told AS event RETURNING id, tenant_id, type
"""
ADDRESS = """
    INSERT INTO webhook_deliveries (id, endpoint_id, event_id, state)
    SELECT 'whd_' || replace(gen_random_uuid()::text, '-', ''), one.id, event.id, 'pending'
    FROM event JOIN webhook_endpoints one
        ON one.tenant_id = event.tenant_id AND event.type = ANY(one.event_types)
"""
NEW_EVENT_ID = "'evt_' || replace(gen_random_uuid()::text, '-', '')"


@dataclass(frozen=True)
class Task:
    """One message on its way, claimed; `attempt` counts from 1 and fences, `tries` since it was (re)sent."""

    id: str
    endpoint_id: str
    event_id: str
    type: str
    body: Mapping[str, object]
    url: str
    attempt: int
    tries: int
    age_s: float
    failures: int  # of the endpoint, in a row
    trace: str | None = None  # of the batch that it tells of


@dataclass(frozen=True)
class DeliveryRow:
    """How it went with one message so far."""

    id: str
    event_id: str
    type: str
    state: str
    attempt: int
    due_at: datetime
    status_code: int | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


def tell_end(session: Session, batch_id: str) -> None:
    """Tell those who want to know that a batch has its last status. In the transaction that gave it that."""
    session.execute(
        text(
            f"""
            WITH told AS (
                SELECT {NEW_EVENT_ID} AS id, b.tenant_id, 'batch.' || b.status AS type,
                       json_build_object('id', b.id) AS data
                FROM batches b
                WHERE b.id = :batch AND b.ended_at IS NOT NULL AND EXISTS (
                    SELECT FROM webhook_endpoints one
                    WHERE one.tenant_id = b.tenant_id AND 'batch.' || b.status = ANY(one.event_types))),
            event AS ({TELL}) {ADDRESS}
            """  # noqa: S608 - pieces of our own
        ),
        {"batch": batch_id},
    )


def tell(session: Session, tenant_id: str, event_type: str, data: Mapping[str, object]) -> None:
    """Tell those who want to know, in the transaction that makes it so."""
    session.execute(
        text(
            f"""
            WITH told AS (
                SELECT {NEW_EVENT_ID} AS id, CAST(:tenant AS text) AS tenant_id, CAST(:type AS text) AS type,
                       CAST(:data AS json) AS data
                WHERE EXISTS (
                    SELECT FROM webhook_endpoints one
                    WHERE one.tenant_id = :tenant AND :type = ANY(one.event_types))),
            event AS ({TELL}) {ADDRESS}
            """  # noqa: S608 - pieces of our own
        ),
        {"tenant": tenant_id, "type": event_type, "data": json.dumps(data)},
    )


def tell_progress(session: Session) -> int:
    """Tell of each further quarter that batches have done, where several passed of the last; how many."""
    rows = session.execute(
        text(
            f"""
            WITH moved AS (
                SELECT id, (completed + failed) * {QUARTERS} / total AS quarter FROM batches b
                WHERE status = 'in_progress' AND total > 0 AND completed + failed < total
                  AND (completed + failed) * {QUARTERS} / total > b.told_quarters
                  AND EXISTS (SELECT FROM webhook_endpoints one WHERE one.tenant_id = b.tenant_id
                                AND 'batch.progress' = ANY(one.event_types))
                FOR UPDATE SKIP LOCKED),
            noted AS (
                UPDATE batches SET told_quarters = moved.quarter FROM moved WHERE batches.id = moved.id
                RETURNING batches.id, tenant_id, quarter, total, completed, failed),
            told AS (
                SELECT {NEW_EVENT_ID} AS id, tenant_id, 'batch.progress' AS type,
                       json_build_object(
                           'id', id, 'percent', quarter * 100 / {QUARTERS}, 'request_counts',
                           json_build_object('total', total, 'completed', completed, 'failed', failed)
                       ) AS data
                FROM noted),
            event AS ({TELL}),
            sent AS ({ADDRESS})
            SELECT id FROM event
            """  # noqa: S608 - pieces of our own
        )
    )
    return len(rows.all())


def claim(
    session: Session,
    *,
    limit: int,
    per_endpoint: int,
    per_tenant: int,
    lease_s: float,
    trips_after: int,
    active: Mapping[str, int],
) -> list[Task]:
    """Messages that are due, a few for each endpoint, one where tries have failed.

    Nobody else gets them for `lease_s`. `active` is how many are under way from here to which endpoint.
    """
    rows = session.execute(
        text(
            """
            WITH busy AS (
                SELECT key AS endpoint_id, value::int AS now FROM json_each_text(CAST(:active AS json))),
            crowd AS (
                SELECT one.tenant_id, sum(busy.now) AS now
                FROM busy JOIN webhook_endpoints one ON one.id = busy.endpoint_id GROUP BY one.tenant_id),
            asked AS (
                SELECT one.id, one.tenant_id,
                       CASE WHEN one.failures >= :trips THEN 1 ELSE :each END - coalesce(busy.now, 0) AS room
                FROM webhook_endpoints one LEFT JOIN busy ON busy.endpoint_id = one.id
                WHERE (one.resting_until IS NULL OR one.resting_until <= now())
                  AND EXISTS (SELECT FROM webhook_deliveries d
                              WHERE d.endpoint_id = one.id AND d.state = 'pending' AND d.due_at <= now())),
            found AS (
                SELECT d.id, d.due_at, asked.tenant_id,
                       row_number() OVER (PARTITION BY asked.tenant_id ORDER BY d.due_at) AS place
                FROM asked CROSS JOIN LATERAL (
                    SELECT id, due_at FROM webhook_deliveries
                    WHERE endpoint_id = asked.id AND state = 'pending' AND due_at <= now()
                    ORDER BY due_at LIMIT greatest(asked.room, 0) FOR UPDATE SKIP LOCKED) AS d),
            due AS (
                SELECT id FROM found LEFT JOIN crowd USING (tenant_id)
                WHERE place <= :most - coalesce(crowd.now, 0) ORDER BY due_at LIMIT :limit),
            taken AS (
                UPDATE webhook_deliveries d SET attempt = d.attempt + 1,
                    due_at = now() + :lease * interval '1 second'
                FROM due WHERE d.id = due.id
                RETURNING d.id, d.endpoint_id, d.event_id, d.attempt, d.attempt - d.earlier AS tries,
                          d.created_at)
            SELECT taken.id, taken.endpoint_id, taken.event_id, e.type, e.body, one.url, taken.attempt,
                   taken.tries,
                   extract(epoch FROM now() - taken.created_at)::float AS age_s, one.failures,
                   (SELECT b.trace FROM batches b
                    WHERE e.type LIKE 'batch.%' AND b.id = e.body->'data'->>'id') AS trace
            FROM taken JOIN webhook_events e ON e.id = taken.event_id
                       JOIN webhook_endpoints one ON one.id = taken.endpoint_id
            """
        ),
        {
            "limit": limit,
            "each": per_endpoint,
            "most": per_tenant,
            "lease": lease_s,
            "trips": trips_after,
            "active": json.dumps(active),
        },
    )
    return [Task(*row) for row in rows]


def note_delivered(session: Session, task: Task, status_code: int) -> None:
    """It has arrived: its endpoint is well."""
    if not _end(session, task, state="delivered", status_code=status_code, error=None):
        return
    session.execute(
        text(
            """
            UPDATE webhook_endpoints SET failures = 0, resting_until = NULL
            WHERE id = :id AND (failures > 0 OR resting_until IS NOT NULL)
              AND resting_until IS DISTINCT FROM 'infinity'
            """
        ),
        {"id": task.endpoint_id},
    )


def note_failed(
    session: Session,
    task: Task,
    *,
    status_code: int | None,
    error: str,
    again_s: float | None,
    rest_s: float | None,
) -> None:
    """This try has failed. Once more in `again_s` seconds, None never; the endpoint rests, None for ever."""
    if again_s is None:
        ours = _end(session, task, state="failed", status_code=status_code, error=error)
    else:
        ours = _put_off(session, task, again_s, status_code=status_code, error=error)
    if not ours:  # somebody else has tried since, and knows better
        return
    session.execute(
        text(
            """
            UPDATE webhook_endpoints SET failures = failures + 1,
                resting_until = CASE WHEN CAST(:rest AS float) IS NULL OR resting_until = 'infinity'
                    THEN 'infinity' WHEN :rest > 0 THEN now() + :rest * interval '1 second' END
            WHERE id = :id
            """
        ),
        {"id": task.endpoint_id, "rest": rest_s},
    )


def list_deliveries(
    session: Session, endpoint_id: str, *, limit: int, after: DeliveryRow | None
) -> Sequence[DeliveryRow]:
    """Newest first, those behind `after`."""
    query = f"{DELIVERIES} WHERE d.endpoint_id = :endpoint"
    rows = read_page(session, query, {"endpoint": endpoint_id}, limit=limit, after=after, of="d.")
    return [DeliveryRow(*row) for row in rows]


def read_delivery(session: Session, endpoint_id: str, delivery_id: str) -> DeliveryRow | None:
    row = session.execute(
        text(f"{DELIVERIES} WHERE d.endpoint_id = :endpoint AND d.id = :id"),
        {"endpoint": endpoint_id, "id": delivery_id},
    ).one_or_none()
    return None if row is None else DeliveryRow(*row)


def send_again(session: Session, delivery_id: str) -> None:
    """Have a message sent now, whatever came of it before, or still may; its day to arrive begins anew."""
    session.execute(
        text(
            """
            UPDATE webhook_deliveries SET state = 'pending', due_at = now(), attempt = attempt + 1,
                earlier = attempt + 1, created_at = now(), ended_at = NULL
            WHERE id = :id
            """
        ),
        {"id": delivery_id},
    )


def delete_old(session: Session, *, older_than_s: float, limit: int) -> int:
    """Remove events so old, with their log; how many."""
    rows = session.execute(
        text(
            """
            DELETE FROM webhook_events WHERE id IN (
                SELECT id FROM webhook_events WHERE created_at < now() - :age * interval '1 second'
                ORDER BY created_at LIMIT :limit)
            RETURNING id
            """
        ),
        {"age": older_than_s, "limit": limit},
    )
    return len(rows.all())


DELIVERIES = """
    SELECT d.id, d.event_id, e.type, d.state, d.attempt, d.due_at, d.status_code, d.error, d.created_at,
           d.ended_at
    FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
"""


def _put_off(session: Session, task: Task, again_s: float, *, status_code: int | None, error: str) -> bool:
    row = session.execute(
        text(
            """
            UPDATE webhook_deliveries SET due_at = now() + :again * interval '1 second',
                status_code = :code, error = :error
            WHERE id = :id AND attempt = :attempt AND state = 'pending' RETURNING id
            """
        ),
        {"id": task.id, "attempt": task.attempt, "again": again_s, "code": status_code, "error": error},
    )
    return row.one_or_none() is not None


def _end(session: Session, task: Task, *, state: str, status_code: int | None, error: str | None) -> bool:
    row = session.execute(
        text(
            """
            UPDATE webhook_deliveries
            SET state = :state, status_code = :code, error = :error, ended_at = now()
            WHERE id = :id AND attempt = :attempt AND state = 'pending' RETURNING id
            """
        ),
        {"id": task.id, "attempt": task.attempt, "state": state, "code": status_code, "error": error},
    )
    return row.one_or_none() is not None
