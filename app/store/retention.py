"""What is old enough to go: batches with all their rows, direct jobs, images. In blocks, each once."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.files import DeletedFile
from app.store.images import USED_WITHIN_S
from app.store.labels import LABELS_GONE
from app.store.usage import GONE, METER_GONE


@dataclass(frozen=True)
class Content:
    """What a removed row said that its bytes are."""

    tenant_id: str
    content_hash: str


@dataclass(frozen=True)
class Block:
    """Jobs that were removed, and the line of the last one."""

    jobs: int
    last_line: int


def mark_batch(session: Session, tenant_id: str, batch_id: str) -> bool:
    """Let an ended batch be gone for its owner; False for one that has not ended, or is none.

    Its idempotency key is free again.
    """
    row = session.execute(
        text(
            """
            UPDATE batches SET deleted_at = now(), idempotency_key = NULL
            WHERE id = :id AND tenant_id = :tenant AND ended_at IS NOT NULL AND deleted_at IS NULL
            RETURNING id
            """
        ),
        {"id": batch_id, "tenant": tenant_id},
    )
    return row.one_or_none() is not None


def mark_old_batches(session: Session, *, ended_before_s: float, limit: int) -> list[str]:
    """The same for batches that ended so long ago; which ones."""
    rows = session.execute(
        text(
            """
            UPDATE batches SET deleted_at = now(), idempotency_key = NULL
            FROM (SELECT id FROM batches
                  WHERE ended_at < now() - :age * interval '1 second' AND deleted_at IS NULL
                  ORDER BY ended_at LIMIT :limit FOR UPDATE SKIP LOCKED) AS old
            WHERE batches.id = old.id RETURNING batches.id
            """
        ),
        {"age": ended_before_s, "limit": limit},
    )
    return list(rows.scalars())


def delete_result_files(session: Session, batch_ids: Sequence[str]) -> list[DeletedFile]:
    """Remove the output and error files of these batches."""
    rows = session.execute(
        text(
            """
            DELETE FROM files USING batches b
            WHERE b.id = ANY(:ids) AND files.id IN (b.output_file_id, b.error_file_id)
              AND files.tenant_id = b.tenant_id
            RETURNING files.id, files.tenant_id, files.object_key
            """
        ),
        {"ids": list(batch_ids)},
    )
    return [DeletedFile(*row) for row in rows]


def lock_deleted(session: Session, *, only: str | None = None, without: Sequence[str] = ()) -> str | None:
    """A batch that is gone for its owner, locked until the transaction ends; others take the next one.

    One whose jobs a retry still copies is not taken. `only` is the one to take, if it is not taken yet.
    """
    return session.execute(
        text(
            """
            SELECT id FROM batches WHERE deleted_at IS NOT NULL AND id <> ALL(:without)
                AND (CAST(:only AS text) IS NULL OR id = :only) AND NOT EXISTS (
                SELECT FROM batches retry WHERE retry.retry_of = batches.id AND retry.ingested_at IS NULL
                    AND retry.status IN ('validating', 'cancelling', 'finalizing'))
            ORDER BY deleted_at LIMIT 1 FOR UPDATE SKIP LOCKED
            """
        ),
        {"only": only, "without": list(without)},
    ).scalar_one_or_none()


def delete_jobs(session: Session, batch_id: str, *, after_line: int, limit: int) -> Block:
    """Remove a block of a locked batch's jobs, with their answers and what they still wait for."""
    row = session.execute(
        text(
            f"""
            WITH gone AS (
                DELETE FROM jobs WHERE id IN (
                    SELECT id FROM jobs WHERE batch_id = :batch AND line > :after ORDER BY line LIMIT :limit)
                RETURNING id, line, image_ids),
            answered AS (DELETE FROM answers USING gone WHERE answers.job_id = gone.id),
            {LABELS_GONE},
            waits AS (
                DELETE FROM job_waits USING (
                    SELECT unnest(image_ids) AS image_id, id FROM gone) AS wait
                WHERE job_waits.image_id = wait.image_id AND job_waits.job_id = wait.id)
            SELECT count(*) AS jobs, coalesce(max(line), 0) AS last_line FROM gone
            """  # noqa: S608 - pieces of our own
        ),
        {"batch": batch_id, "after": after_line, "limit": limit},
    ).one()
    return Block(row.jobs, row.last_line)


def delete_results(session: Session, batch_id: str, *, limit: int) -> int:
    """Remove a block of the order in which a locked batch's jobs ended."""
    rows = session.execute(
        text(
            """
            DELETE FROM results USING (
                SELECT batch_id, seq FROM results WHERE batch_id = :batch ORDER BY seq LIMIT :limit) AS found
            WHERE results.batch_id = found.batch_id AND results.seq = found.seq RETURNING results.seq
            """
        ),
        {"batch": batch_id, "limit": limit},
    )
    return len(rows.all())


def delete_batch(session: Session, batch_id: str) -> None:
    """Remove a locked batch of which nothing else is left."""
    session.execute(text("DELETE FROM batch_errors WHERE batch_id = :batch"), {"batch": batch_id})
    session.execute(text("DELETE FROM batches WHERE id = :batch"), {"batch": batch_id})


def delete_job(session: Session, tenant_id: str, job_id: int) -> bool:
    """Remove a direct job that has ended; False for one that has not, or is none. Its usage stays."""
    row = session.execute(
        text(
            f"""
            WITH gone AS (
                DELETE FROM jobs
                WHERE id = :id AND tenant_id = :tenant AND batch_id IS NULL AND finished_at IS NOT NULL
                RETURNING {GONE}),
            answered AS (DELETE FROM answers USING gone WHERE answers.job_id = gone.id),
            {LABELS_GONE},
            {METER_GONE}
            SELECT id FROM gone
            """  # noqa: S608 - pieces of our own
        ),
        {"id": job_id, "tenant": tenant_id},
    )
    return row.one_or_none() is not None


def delete_old_jobs(session: Session, *, ended_before_s: float, limit: int) -> int:
    """Remove a block of direct jobs that ended so long ago, with their answers. Their usage stays."""
    return session.execute(
        text(
            f"""
            WITH gone AS (
                DELETE FROM jobs USING (
                    SELECT id FROM jobs
                    WHERE batch_id IS NULL AND finished_at < now() - :age * interval '1 second'
                    ORDER BY finished_at LIMIT :limit FOR UPDATE SKIP LOCKED) AS old
                WHERE jobs.id = old.id RETURNING {GONE}),
            answered AS (DELETE FROM answers USING gone WHERE answers.job_id = gone.id),
            {LABELS_GONE},
            {METER_GONE}
            SELECT count(*) FROM gone
            """  # noqa: S608 - pieces of our own
        ),
        {"age": ended_before_s, "limit": limit},
    ).scalar_one()


def delete_old_images(session: Session, *, unused_for_s: float, limit: int) -> list[Content | None]:
    """Remove a block of images that nobody has referred to for so long; what each one's bytes were, if any.

    Whatever its age, an image stays while a batch is open that was made before its last use, or a direct job
    that refers to it. An image that somebody refers to at this moment is locked, and skipped (`hold_stored`).
    """
    rows = session.execute(
        text(
            """
            WITH open AS MATERIALIZED (
                SELECT tenant_id, min(created_at) AS since FROM batches
                WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
                GROUP BY tenant_id),
            needed AS MATERIALIZED (
                SELECT unnest(image_ids) AS id FROM jobs
                WHERE batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')
                  AND created_at < now() - :age * interval '1 second'
                UNION ALL
                SELECT unnest(image_ids) FROM jobs WHERE state = 'running')
            DELETE FROM images USING (
                SELECT images.id FROM images LEFT JOIN open ON open.tenant_id = images.tenant_id
                WHERE state IN ('stored', 'failed')
                  AND used_at < now() - (:age + :within) * interval '1 second'
                  AND (open.since IS NULL OR used_at < open.since - :within * interval '1 second')
                  AND images.id NOT IN (SELECT id FROM needed)
                ORDER BY used_at LIMIT :limit FOR UPDATE OF images SKIP LOCKED) AS old
            WHERE images.id = old.id RETURNING images.tenant_id, images.content_hash
            """
        ),
        {"age": unused_for_s, "within": USED_WITHIN_S, "limit": limit},
    )
    return [Content(*row) if row.content_hash else None for row in rows]


def delete_images_of(session: Session, tenant_ids: Sequence[str], ref_hashes: Sequence[str]) -> list[Content]:
    """Remove the stored images of these references, tenant by tenant; what their bytes were."""
    rows = session.execute(
        text(
            """
            DELETE FROM images USING unnest(CAST(:tenants AS text[]), CAST(:hashes AS text[]))
                AS given(tenant_id, ref_hash)
            WHERE images.tenant_id = given.tenant_id AND images.ref_hash = given.ref_hash
              AND images.state = 'stored'
            RETURNING images.tenant_id, images.content_hash
            """
        ),
        {"tenants": list(tenant_ids), "hashes": list(ref_hashes)},
    )
    return [Content(*row) for row in rows]
