"""Removes rows whose bytes lie in the object store, and dooms these bytes in the same transaction."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.deleter import IMAGE_GRACE_S
from app.ids import image_key
from app.references import ImageReference, RefKind, ref_hash
from app.store import files, looks, retention
from app.store.doomed import doom
from app.store.files import DeletedFile
from app.store.retention import Content


def remove_file(session: Session, tenant_id: str, file_id: str) -> DeletedFile | None:
    """Remove a tenant's file, whoever still needs it; None where there is none."""
    file = files.delete_file(session, tenant_id, file_id)
    _follow(session, [file] if file else [])
    return file


def remove_expired_files(session: Session, *, limit: int) -> int:
    """Remove a block of files whose time is over; how many."""
    expired = files.delete_expired(session, limit=limit)
    _follow(session, expired)
    return len(expired)


def remove_batch(session: Session, tenant_id: str, batch_id: str) -> bool:
    """Let an ended batch be gone for its owner, its output and error files with it; whether there was one."""
    marked = retention.mark_batch(session, tenant_id, batch_id)
    if marked:
        _follow(session, retention.delete_result_files(session, [batch_id]))
    return marked


def remove_old_batches(session: Session, *, ended_before_s: float, limit: int) -> Sequence[str]:
    """The same for a block of batches that ended so long ago; which ones."""
    marked = retention.mark_old_batches(session, ended_before_s=ended_before_s, limit=limit)
    _follow(session, retention.delete_result_files(session, marked))
    return marked


def remove_old_images(session: Session, *, unused_for_s: float, limit: int) -> int:
    """Remove a block of images that nobody has referred to for so long; how many."""
    gone = retention.delete_old_images(session, unused_for_s=unused_for_s, limit=limit)
    _doom_contents(session, [content for content in gone if content])
    return len(gone)


def _follow(session: Session, removed: Sequence[DeletedFile]) -> None:
    """Have the bytes of removed files deleted, also those that were kept of them as images."""
    if not removed:
        return
    doom(session, [file.object_key for file in removed])
    hashes = [ref_hash(ImageReference(RefKind.FILE, file.id)) for file in removed]
    _doom_contents(session, retention.delete_images_of(session, [file.tenant_id for file in removed], hashes))


def _doom_contents(session: Session, contents: Sequence[Content]) -> None:
    """Whoever else has them: of two who remove the last two rows at once, each would still see the other's.

    The deleter looks again.
    """
    looks.forget(session, [(content.tenant_id, content.content_hash) for content in contents])
    keys = [image_key(content.tenant_id, content.content_hash) for content in contents]
    doom(session, keys, after_s=IMAGE_GRACE_S)
