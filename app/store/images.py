"""Images that jobs refer to: wished for, fetched once, stored under their content hash."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.journal import UNPICTURED
from app.store.notices import JOBS, notify

# A fetcher that has not reported for this long after its own time limit is taken for dead.
FETCH_GRACE_S = 30
# How much older an image's last use may be than the row says: a hot one is not written for every job.
USED_WITHIN_S = 3600


@dataclass(frozen=True)
class ImageWish:
    """An image somebody refers to. `ref_hash` is what makes two references the same one."""

    kind: str
    ref_hash: str
    ref: str

    @property
    def host(self) -> str:
        """The host of a URL; empty for what our own object store serves."""
        return (urlsplit(self.ref).hostname or "") if self.kind == "url" else ""


@dataclass(frozen=True)
class WantedImage:
    id: int
    stored: bool


@dataclass(frozen=True)
class StoredImage:
    """What is known of an image whose bytes lie in the object store. Sizes in pixels, shown upright."""

    content_hash: str
    format: str
    width: int
    height: int
    bytes: int


@dataclass(frozen=True)
class FetchTask:
    id: int
    tenant_id: str
    kind: str
    ref: str
    host: str
    attempt: int  # fences the result: grows with every claim
    tries: int  # what the retry policy counts: attempts less those that an outage of ours ended
    is_counted: bool = False  # it comes from elsewhere, and its tenant may have so many a day
    traces: Mapping[int, str] = field(default_factory=dict, compare=False)  # of the jobs that wait for it


@dataclass(frozen=True)
class ImageRow:
    id: int
    tenant_id: str
    content_hash: str
    width: int
    height: int


def want_images(
    session: Session, tenant_id: str, wishes: Sequence[ImageWish], *, reuse_s: int
) -> dict[str, WantedImage]:
    """Rows for these references, keyed by ref_hash: ones on their way or stored lately, else new ones.

    Rows on their way stay locked against their fetcher until the caller commits: what the caller
    writes into job_waits is then there when the fetcher looks for waiting jobs.
    """
    wishes = sorted({wish.ref_hash: wish for wish in wishes}.values(), key=lambda wish: wish.ref_hash)
    hashes = [wish.ref_hash for wish in wishes]
    found: dict[str, WantedImage] = {}
    while missing := [wish for wish in wishes if wish.ref_hash not in found]:
        found |= _find(session, tenant_id, hashes, reuse_s)
        if missing := [wish for wish in missing if wish.ref_hash not in found]:
            found |= _add(session, tenant_id, missing)
    return found


def _find(
    session: Session, tenant_id: str, ref_hashes: Sequence[str], reuse_s: int
) -> dict[str, WantedImage]:
    stored = session.execute(
        text(
            """
            SELECT DISTINCT ON (ref_hash) ref_hash, id,
                   used_at < now() - :within * interval '1 second' AS is_stale FROM images
            WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes) AND state = 'stored'
              AND (ref_kind IN ('data', 'file') OR stored_at > now() - :reuse * interval '1 second')
            ORDER BY ref_hash, stored_at DESC
            """
        ),
        {"tenant": tenant_id, "hashes": list(ref_hashes), "reuse": reuse_s, "within": USED_WITHIN_S},
    ).all()
    kept = _without_removed(session, stored)
    found = {key: WantedImage(image_id, stored=True) for key, image_id in kept.items()}
    in_flight = session.execute(
        text(
            """
            SELECT ref_hash, id FROM images
            WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes) AND state IN ('pending', 'fetching')
            ORDER BY id FOR SHARE
            """
        ),
        {"tenant": tenant_id, "hashes": [key for key in ref_hashes if key not in found]},
    ).all()
    return found | {row.ref_hash: WantedImage(row.id, stored=False) for row in in_flight}


def _add(session: Session, tenant_id: str, wishes: Sequence[ImageWish]) -> dict[str, WantedImage]:
    rows = session.execute(
        text(
            """
            INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, host, state)
            SELECT :tenant, kind, ref_hash, ref, host, 'pending'
            FROM unnest(CAST(:kinds AS text[]), CAST(:hashes AS text[]), CAST(:refs AS text[]),
                        CAST(:hosts AS text[])) AS wish(kind, ref_hash, ref, host)
            ON CONFLICT (tenant_id, ref_hash) WHERE state IN ('pending', 'fetching') DO NOTHING
            RETURNING ref_hash, id
            """
        ),
        {
            "tenant": tenant_id,
            "kinds": [wish.kind for wish in wishes],
            "hashes": [wish.ref_hash for wish in wishes],
            "refs": [wish.ref for wish in wishes],
            "hosts": [wish.host for wish in wishes],
        },
    ).all()
    return {row.ref_hash: WantedImage(row.id, stored=False) for row in rows}


def hold_stored(session: Session, image_ids: Sequence[int]) -> set[int]:
    """Note that stored images are in use, so that retention leaves them; those that it removed are missing.

    One that was used within the hour is not written: it has longer to live than any transaction.
    """
    values = {"ids": list(image_ids), "within": USED_WITHIN_S}
    session.execute(
        text(
            """
            UPDATE images SET used_at = now() FROM (
                SELECT id FROM images
                WHERE id = ANY(:ids) AND state = 'stored' AND used_at < now() - :within * interval '1 second'
                ORDER BY id FOR NO KEY UPDATE) AS stale
            WHERE images.id = stale.id
            """
        ),
        values,
    )
    # A statement of its own, to see what somebody else noted while we waited.
    rows = session.execute(text("SELECT id FROM images WHERE id = ANY(:ids) AND state = 'stored'"), values)
    return set(rows.scalars())


def _without_removed(session: Session, rows: Sequence[Any]) -> dict[str, int]:
    """The ids of these stored images by ref_hash, which all count as used now."""
    stale = [row.id for row in rows if row.is_stale]
    lost = set(stale) - hold_stored(session, stale) if stale else set[int]()
    return {row.ref_hash: row.id for row in rows if row.id not in lost}


def find_kept(session: Session, tenant_id: str, ref_hashes: Sequence[str]) -> dict[str, int]:
    """Ids of stored data-URL images by ref_hash: their bytes need not be put again. They count as used."""
    rows = session.execute(
        text(
            """
            SELECT DISTINCT ON (ref_hash) ref_hash, id,
                   used_at < now() - :within * interval '1 second' AS is_stale FROM images
            WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes) AND state = 'stored' AND ref_kind = 'data'
            ORDER BY ref_hash, id
            """
        ),
        {"tenant": tenant_id, "hashes": list(ref_hashes), "within": USED_WITHIN_S},
    ).all()
    return _without_removed(session, rows)


def keep_image(session: Session, tenant_id: str, ref_hash: str, stored: StoredImage) -> int:
    """The row of an image whose bytes came with the job (a data URL) and are in the object store by now."""
    kept = find_kept(session, tenant_id, [ref_hash])
    if ref_hash in kept:
        return kept[ref_hash]
    return session.execute(
        text(
            """
            INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, state, content_hash, format,
                                width, height, bytes, stored_at)
            VALUES (:tenant, 'data', :hash, '', 'stored', :content_hash, :format,
                    :width, :height, :bytes, now())
            RETURNING id
            """
        ),
        {"tenant": tenant_id, "hash": ref_hash, **vars(stored)},
    ).scalar_one()


def claim_fetches(
    session: Session,
    *,
    limit: int,
    lease_s: float,
    per_host: int,
    active: Mapping[str, int],
    images_day: int = 0,
) -> list[FetchTask]:
    """Take images that are due, those of dead fetchers among them, under a lease.

    At most `per_host` of one host, less those that the caller has `active`: what is claimed can be started
    at once, and a slow host holds up its own images only. What our own store serves knows no such limit.
    None of a host that wants a pause, and none from elsewhere for a tenant whose quota of the day is spent
    (`images_day` where it has none of its own).
    """
    rows = session.execute(
        text(
            """
            WITH RECURSIVE lanes AS (
                (SELECT host, tenant_id, ref_kind FROM images WHERE state IN ('pending', 'fetching')
                 ORDER BY host, tenant_id, ref_kind LIMIT 1)
                UNION ALL
                SELECT next.* FROM lanes CROSS JOIN LATERAL (
                    SELECT i.host, i.tenant_id, i.ref_kind FROM images i
                    WHERE i.state IN ('pending', 'fetching')
                      AND (i.host, i.tenant_id, i.ref_kind) > (lanes.host, lanes.tenant_id, lanes.ref_kind)
                    ORDER BY i.host, i.tenant_id, i.ref_kind LIMIT 1) AS next),
            spent AS (
                SELECT d.tenant_id FROM image_days d JOIN tenants t ON t.id = d.tenant_id
                WHERE d.day = (now() AT TIME ZONE 'UTC')::date AND coalesce(t.quota_images_day, :quota) > 0
                  AND d.fetched >= coalesce(t.quota_images_day, :quota)),
            room AS (
                SELECT lanes.*, CASE lanes.host WHEN '' THEN :limit ELSE :per_host END
                       - coalesce(busy.n, 0) AS free
                FROM lanes LEFT JOIN unnest(CAST(:hosts AS text[]), CAST(:counts AS int[]))
                     AS busy(host, n) ON busy.host = lanes.host AND lanes.host <> ''
                WHERE NOT EXISTS (SELECT FROM host_pauses p WHERE p.host = lanes.host AND p.until > now())
                  AND (lanes.ref_kind = 'file' OR lanes.tenant_id NOT IN (SELECT tenant_id FROM spent))),
            due AS (
                SELECT found.id, found.due_at, room.free,
                       row_number() OVER (PARTITION BY room.host ORDER BY found.due_at) AS place
                FROM room CROSS JOIN LATERAL (
                    SELECT i.id, i.due_at FROM images i
                    WHERE i.state IN ('pending', 'fetching') AND i.host = room.host
                      AND i.tenant_id = room.tenant_id AND i.ref_kind = room.ref_kind AND i.due_at <= now()
                    ORDER BY i.due_at LIMIT least(:limit, room.free) FOR UPDATE SKIP LOCKED) AS found
                WHERE room.free > 0)
            UPDATE images SET state = 'fetching', attempt = attempt + 1,
                              due_at = now() + :lease * interval '1 second'
            WHERE id IN (SELECT id FROM due WHERE place <= free ORDER BY due_at LIMIT :limit)
            RETURNING id, tenant_id, ref_kind AS kind, ref, host, attempt, attempt - returns AS tries,
                      ref_kind <> 'file' AND EXISTS (
                          SELECT FROM tenants t
                          WHERE t.id = tenant_id AND coalesce(t.quota_images_day, :quota) > 0) AS is_counted
            """
        ),
        {
            "limit": limit,
            "lease": lease_s + FETCH_GRACE_S,
            "per_host": per_host,
            "quota": images_day,
            "hosts": list(active),
            "counts": list(active.values()),
        },
    ).mappings()
    return [FetchTask(**row) for row in rows]


def record_stored(session: Session, task: FetchTask, stored: StoredImage) -> int | None:
    """Note an image as stored and count its waiting jobs down; how many became ready, None if not ours."""
    ours = session.scalar(
        text(
            """
            UPDATE images SET state = 'stored', stored_at = now(), used_at = now(),
                              content_hash = :content_hash,
                              format = :format, width = :width, height = :height, bytes = :bytes
            WHERE id = :id AND state = 'fetching' AND attempt = :attempt RETURNING id
            """
        ),
        {"id": task.id, "attempt": task.attempt, **vars(stored)},
    )
    if ours is None:
        return None
    ready = session.execute(
        text(
            """
            WITH waits AS (DELETE FROM job_waits WHERE image_id = :id RETURNING job_id),
            locked AS (
                SELECT id FROM jobs WHERE id IN (SELECT job_id FROM waits) AND state = 'waiting'
                ORDER BY id FOR UPDATE),
            counted AS (
                UPDATE jobs SET waiting_on = waiting_on - 1,
                                state = CASE WHEN waiting_on = 1 THEN 'ready' ELSE state END
                FROM locked WHERE jobs.id = locked.id RETURNING jobs.waiting_on, jobs.priority)
            SELECT count(*) AS jobs, count(*) FILTER (WHERE priority = 'interactive') AS interactive
            FROM counted WHERE waiting_on = 0
            """
        ),
        {"id": task.id},
    ).one()
    if ready.interactive:
        notify(session, JOBS)
    return ready.jobs


def record_failed(session: Session, task: FetchTask, code: str, message: str) -> int | None:
    """Note an image as failed and end its waiting jobs with it; how many, None if not ours."""
    ours = session.scalar(
        text(
            """
            UPDATE images SET state = 'failed', error_code = :code, error_message = :message
            WHERE id = :id AND state = 'fetching' AND attempt = :attempt RETURNING id
            """
        ),
        {"id": task.id, "attempt": task.attempt, "code": code, "message": message},
    )
    if ours is None:
        return None
    return session.execute(
        text(
            f"""
            WITH waits AS (DELETE FROM job_waits WHERE image_id = :id RETURNING job_id),
            locked AS (
                SELECT id FROM jobs WHERE id IN (SELECT job_id FROM waits) AND state = 'waiting'
                ORDER BY id FOR UPDATE),
            ended AS (
                UPDATE jobs SET state = 'failed', error_code = :code, error_message = :message,
                                finished_at = now()
                FROM locked WHERE jobs.id = locked.id
                RETURNING jobs.id, jobs.batch_id, jobs.line, jobs.error_code, jobs.error_message),
            {UNPICTURED}
            SELECT count(*) FROM ended
            """  # noqa: S608 - pieces of our own
        ),
        {"id": task.id, "code": code, "message": message},
    ).scalar_one()


def record_later(session: Session, task: FetchTask, after_s: float, *, counts: bool = True) -> bool:
    """Put an image back, due again after a while; `counts` says whether this try counts as one."""
    ours = session.scalar(
        text(
            """
            UPDATE images SET state = 'pending', due_at = now() + :after * interval '1 second',
                              returns = returns + CASE WHEN :counts THEN 0 ELSE 1 END
            WHERE id = :id AND state = 'fetching' AND attempt = :attempt RETURNING id
            """
        ),
        {"id": task.id, "attempt": task.attempt, "after": after_s, "counts": counts},
    )
    return ours is not None


def read_images(session: Session, image_ids: Sequence[int]) -> dict[int, ImageRow]:
    """Stored images by id; others are absent."""
    rows = session.execute(
        text(
            """
            SELECT id, tenant_id, content_hash, width, height FROM images
            WHERE id = ANY(:ids) AND state = 'stored'
            """
        ),
        {"ids": list(image_ids)},
    ).all()
    return {row.id: ImageRow(row.id, row.tenant_id, row.content_hash, row.width, row.height) for row in rows}


def count_open(session: Session) -> dict[str, int]:
    """How many images are on their way, by state."""
    rows = session.execute(
        text("SELECT state, count(*) AS n FROM images WHERE state IN ('pending', 'fetching') GROUP BY state")
    ).all()
    return {row.state: row.n for row in rows}
