"""Objects of the store that nothing needs any more: doomed with the row that pointed to them."""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.ids import KeyParts, file_key, image_key, key_parts


def doom(session: Session, keys: Sequence[str], *, after_s: float = 0) -> None:
    """Have these objects deleted `after_s` seconds from now, or earlier where that was said before."""
    session.execute(
        text(
            """
            INSERT INTO doomed_objects (key, doomed_at)
            SELECT key, now() + :after * interval '1 second'
            FROM unnest(CAST(:keys AS text[])) AS given(key) ORDER BY key
            ON CONFLICT (key) DO UPDATE
            SET doomed_at = least(doomed_objects.doomed_at, excluded.doomed_at)
            """
        ),
        {"keys": sorted(set(keys)), "after": after_s},
    )


def spare(session: Session, keys: Sequence[str]) -> set[str]:
    """Let these objects live; those of which it is too late, as somebody may be deleting them, are returned.

    Commit it before such an object is put: see `app.deleter`.
    """
    session.execute(
        text(
            """
            DELETE FROM doomed_objects USING (
                SELECT key FROM doomed_objects WHERE key = ANY(:keys) AND tried_at IS NULL
                ORDER BY key FOR UPDATE) AS found
            WHERE doomed_objects.key = found.key
            """
        ),
        {"keys": list(keys)},
    )
    rows = session.execute(
        text("SELECT key FROM doomed_objects WHERE key = ANY(:keys)"), {"keys": list(keys)}
    )
    return set(rows.scalars())


def lock_doomed(session: Session, *, limit: int) -> list[str]:
    """Keys whose time has come, locked until the transaction ends; others skip them."""
    rows = session.execute(
        text(
            """
            SELECT key FROM doomed_objects WHERE doomed_at <= now()
            ORDER BY doomed_at LIMIT :limit FOR UPDATE SKIP LOCKED
            """
        ),
        {"limit": limit},
    )
    return list(rows.scalars())


def mark_tried(session: Session, keys: Sequence[str], *, again_after_s: float) -> None:
    """These are being deleted; unless that is heard of, they are due again after a while."""
    session.execute(
        text(
            """
            UPDATE doomed_objects SET tried_at = now(), doomed_at = now() + :after * interval '1 second'
            WHERE key = ANY(:keys)
            """
        ),
        {"keys": list(keys), "after": again_after_s},
    )


def forget(session: Session, keys: Sequence[str], *, tried: bool) -> None:
    """These objects are deleted after they were tried, or are needed after all.

    One that was doomed anew since a deleter that froze has tried it stays.
    """
    session.execute(
        text("DELETE FROM doomed_objects WHERE key = ANY(:keys) AND (tried_at IS NOT NULL) = :tried"),
        {"keys": list(keys), "tried": tried},
    )


def find_needed(session: Session, keys: Sequence[str]) -> set[str]:
    """Those of the keys that a row points to or is about to: also files of a batch that has not ended yet."""
    parts = [found for key in keys if (found := key_parts(key))]
    return _needed_files(session, parts) | _needed_images(session, parts)


def known_tenants(session: Session, tenant_ids: Sequence[str]) -> set[str]:
    rows = session.execute(text("SELECT id FROM tenants WHERE id = ANY(:ids)"), {"ids": list(tenant_ids)})
    return set(rows.scalars())


def _needed_files(session: Session, parts: Sequence[KeyParts]) -> set[str]:
    files = [part for part in parts if part.file_id]
    rows = session.execute(
        text(
            """
            SELECT given.tenant_id, given.id
            FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS text[]), CAST(:batches AS text[]))
                AS given(tenant_id, id, batch_id)
            WHERE EXISTS (SELECT FROM files f WHERE f.id = given.id AND f.tenant_id = given.tenant_id)
               OR EXISTS (SELECT FROM batches b WHERE b.id = given.batch_id AND b.tenant_id = given.tenant_id
                            AND b.ended_at IS NULL)
            """
        ),
        {
            "tenants": [part.tenant_id for part in files],
            "ids": [part.file_id for part in files],
            "batches": [part.batch_id for part in files],
        },
    )
    return {file_key(row.tenant_id, row.id) for row in rows}


def _needed_images(session: Session, parts: Sequence[KeyParts]) -> set[str]:
    images = [part for part in parts if part.content_hash]
    rows = session.execute(
        text(
            """
            SELECT given.tenant_id, given.content_hash
            FROM unnest(CAST(:tenants AS text[]), CAST(:hashes AS text[])) AS given(tenant_id, content_hash)
            WHERE EXISTS (SELECT FROM images i
                          WHERE i.tenant_id = given.tenant_id AND i.content_hash = given.content_hash)
            """
        ),
        {
            "tenants": [part.tenant_id for part in images],
            "hashes": [part.content_hash for part in images],
        },
    )
    return {image_key(row.tenant_id, row.content_hash) for row in rows}
