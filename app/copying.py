"""Fills the batch of a retry or a shadow: an ended batch's jobs are copied instead of a file's lines read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from app import tracing
from app.db import Sessions, transaction
from app.errors import LineError
from app.store import copies as store
from app.store import ingest
from app.store.copies import Copy, OldJob
from app.store.images import WantedImage, hold_stored, want_images
from app.store.ingest import IngestTask, LostBatch, Step

BLOCK_JOBS = 2_000
IMAGE_GONE = "The image is no longer stored: send the request again in a new file."


class Copier:
    """Adds one block per call, from behind the line of the old batch that the task's `bytes` name."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        models: Collection[str],
        reuse_s: int,
        lease_s: float,
        block_jobs: int = BLOCK_JOBS,
    ) -> None:
        self._sessions = sessions
        self._models = models
        self._reuse_s = reuse_s
        self._lease_s = lease_s
        self._block_jobs = block_jobs

    def add(self, task: IngestTask) -> IngestTask | None:
        """The task as it stands after one more block; None when there is no further one."""
        assert task.retry_of is not None
        with (
            tracing.follow("ingest", task.trace, batch=task.id),
            transaction(self._sessions) as session,
        ):
            old_jobs = store.read_old_jobs(
                session,
                task.retry_of,
                states=task.retry_states or (),
                after_line=task.bytes,
                limit=self._block_jobs,
                shadow=task.shadow,
            )
            if not old_jobs:
                return None
            step = self._insert(session, task, old_jobs)
        return replace(
            task,
            bytes=task.bytes + step.bytes,
            lines=task.lines + step.lines,
            jobs=task.jobs + step.jobs,
            model=task.model or step.model,
        )

    def _insert(self, session: Session, task: IngestTask, old_jobs: Sequence[OldJob]) -> Step:
        """Images are locked first and the batch before its new rows, in the order of those that end jobs."""
        images = self._images(session, task.tenant_id, old_jobs)
        job_ids = ingest.draw_job_ids(session, len(old_jobs))
        copies = [
            copy_job(old, job_id, images, self._models) for old, job_id in zip(old_jobs, job_ids, strict=True)
        ]
        copies = tracing.with_traces(task.id, copies, is_first=not task.jobs)
        step = Step(
            bytes=old_jobs[-1].line - task.bytes,
            lines=len(copies),
            jobs=len(copies),
            failed=[copy for copy in copies if copy.error],
            bad_lines=0,
            model=old_jobs[0].model,
        )
        if not ingest.advance(session, task, step, lease_s=self._lease_s):
            raise LostBatch
        store.insert_copies(session, task, copies)
        return step

    def _images(
        self, session: Session, tenant_id: str, old_jobs: Sequence[OldJob]
    ) -> Mapping[int, WantedImage]:
        """For each image that the jobs name, the one that serves now: itself, or one fetched anew."""
        named = sorted({image_id for job in old_jobs for image_id in job.image_ids})
        if not named:
            return {}
        old = store.read_old_images(session, named)
        held = hold_stored(session, [image.id for image in old if image.stored])
        # A data URL's bytes came once, with its line: what is not stored cannot be had again.
        lost = [image for image in old if image.id not in held and image.wish.kind != "data"]
        wishes = [image.wish for image in lost]
        wanted = want_images(session, tenant_id, wishes, reuse_s=self._reuse_s) if wishes else {}
        anew = {image.id: wanted[image.wish.ref_hash] for image in lost}
        return anew | {image_id: WantedImage(image_id, stored=True) for image_id in held}


def copy_job(old: OldJob, job_id: int, images: Mapping[int, WantedImage], models: Collection[str]) -> Copy:
    """The job once more with the images that serve now; failed at once where it could never run."""
    if old.model not in models:
        message = f"The model '{old.model}' is no longer served."
        return Copy(job_id, old, old.image_ids, error=LineError("model_not_found", message, old.line))
    if any(image_id not in images for image_id in old.image_ids):
        return Copy(job_id, old, old.image_ids, error=LineError("image_deleted", IMAGE_GONE, old.line))
    wanted = [images[image_id] for image_id in old.image_ids]
    return Copy(
        job_id,
        old,
        image_ids=[image.id for image in wanted],
        waiting_on=frozenset(image.id for image in wanted if not image.stored),
    )
