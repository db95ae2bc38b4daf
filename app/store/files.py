"""Files: what is known of them; their bytes lie in the object store."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import RowMapping, text
from sqlalchemy.orm import Session

from app.store.paging import read_page


@dataclass(frozen=True)
class NewFile:
    id: str
    tenant_id: str
    purpose: str
    filename: str
    content_type: str
    bytes: int
    object_key: str
    expires_after_s: int | None


@dataclass(frozen=True)
class FileRow:
    id: str
    purpose: str
    filename: str
    content_type: str
    bytes: int
    object_key: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True)
class DeletedFile:
    """A file whose row is gone, and whose bytes are to follow."""

    id: str
    tenant_id: str
    object_key: str


def insert_file(session: Session, file: NewFile) -> FileRow:
    row = session.execute(
        text(
            """
            INSERT INTO files (id, tenant_id, purpose, filename, content_type, bytes, object_key, expires_at)
            VALUES (:id, :tenant_id, :purpose, :filename, :content_type, :bytes, :object_key,
                    now() + CAST(:expires_after_s AS int) * interval '1 second')
            RETURNING *
            """
        ),
        vars(file),
    )
    return _file(row.mappings().one())


def read_file(session: Session, tenant_id: str, file_id: str) -> FileRow | None:
    """A tenant's file, unless it has expired."""
    row = (
        session.execute(
            text(
                """
                SELECT * FROM files
                WHERE id = :id AND tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
                """
            ),
            {"id": file_id, "tenant": tenant_id},
        )
        .mappings()
        .one_or_none()
    )
    return _file(row) if row else None


def list_files(
    session: Session,
    tenant_id: str,
    *,
    limit: int,
    newest_first: bool,
    after: FileRow | None,
    purpose: str | None,
) -> Sequence[FileRow]:
    """A page of a tenant's unexpired files, in order of creation, from behind `after` on."""
    query = """
        SELECT * FROM files
        WHERE tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
          AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
    """
    values = {"tenant": tenant_id, "purpose": purpose}
    rows = read_page(session, query, values, limit=limit, after=after, newest_first=newest_first)
    return [_file(row) for row in rows.mappings()]


def delete_file(session: Session, tenant_id: str, file_id: str) -> DeletedFile | None:
    """Remove a file that has not expired; what is left to delete of it, None where there is none."""
    row = session.execute(
        text(
            """
            DELETE FROM files
            WHERE id = :id AND tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
            RETURNING id, tenant_id, object_key
            """
        ),
        {"id": file_id, "tenant": tenant_id},
    ).one_or_none()
    return DeletedFile(*row) if row else None


def delete_expired(session: Session, *, limit: int) -> list[DeletedFile]:
    """Remove files whose time is over; others skip them.

    What an open batch or direct job of their time may need stays: the input of a batch that still reads it,
    and pictures, which jobs name by the file's id.
    """
    rows = session.execute(
        text(
            """
            WITH open AS MATERIALIZED (
                SELECT tenant_id, min(created_at) AS since FROM (
                    SELECT tenant_id, created_at FROM batches
                    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
                    UNION ALL
                    SELECT tenant_id, created_at FROM jobs
                    WHERE batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')) AS work
                GROUP BY tenant_id)
            DELETE FROM files USING (
                SELECT files.id FROM files LEFT JOIN open ON open.tenant_id = files.tenant_id
                WHERE expires_at <= now()
                  AND (purpose NOT IN ('vision', 'user_data') OR open.since IS NULL
                       OR open.since >= expires_at)
                  AND NOT EXISTS (
                      SELECT FROM batches b
                      WHERE b.input_file_id = files.id AND b.ingested_at IS NULL
                        AND b.status IN ('validating', 'finalizing', 'cancelling'))
                ORDER BY expires_at LIMIT :limit FOR UPDATE OF files SKIP LOCKED) AS expired
            WHERE files.id = expired.id RETURNING files.id, files.tenant_id, files.object_key
            """
        ),
        {"limit": limit},
    )
    return [DeletedFile(*row) for row in rows]


def _file(row: RowMapping) -> FileRow:
    return FileRow(**{field.name: row[field.name] for field in fields(FileRow)})
