"""Jobs of an ended batch on their way into the batch that tries them again, or asks another model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.answer_keys import VAIN
from app.errors import LineError
from app.store.images import ImageWish
from app.store.ingest import IngestTask
from app.store.jobs import insert_waits
from app.store.shadows import IN_SAMPLE


@dataclass(frozen=True)
class OldJob:
    id: int
    line: int
    custom_id: str
    model: str
    image_ids: Sequence[int]


@dataclass(frozen=True)
class OldImage:
    """What a job refers to: stored, or to be wished for anew."""

    id: int
    wish: ImageWish
    stored: bool


@dataclass(frozen=True)
class Copy:
    """A job once more, under an id of its own; one with an `error` is over before it begins."""

    id: int
    old: OldJob
    image_ids: Sequence[int]
    waiting_on: frozenset[int] = frozenset()
    error: LineError | None = None
    trace: str | None = None

    @property
    def line(self) -> int:
        return self.old.line

    @property
    def state(self) -> str:
        open_state = "waiting" if self.waiting_on else "ready"
        return "failed" if self.error else open_state


def read_old_jobs(
    session: Session,
    batch_id: str,
    *,
    states: Sequence[str],
    after_line: int,
    limit: int,
    shadow: Mapping[str, Any] | None = None,
) -> list[OldJob]:
    """The next of a batch's jobs in these states, lines that are no request left out.

    For a shadow those of its sample alone, as jobs of its own model.
    """
    rows = session.execute(
        text(
            f"""
            SELECT id, line, custom_id, {":other" if shadow else "model"}, image_ids FROM jobs
            WHERE batch_id = :batch AND line > :after AND state = ANY(:states) AND prompt::text <> '{{}}'
                {f"AND {IN_SAMPLE}" if shadow else ""}
            ORDER BY line LIMIT :limit
            """  # noqa: S608 - constants
        ),
        {"batch": batch_id, "states": list(states), "after": after_line, "limit": limit, **(shadow or {})},
    )
    return [OldJob(*row) for row in rows]


def read_old_images(session: Session, image_ids: Sequence[int]) -> list[OldImage]:
    """What is known of these images; those whose rows are gone are missing."""
    rows = session.execute(
        text("SELECT id, ref_kind, ref_hash, ref, state FROM images WHERE id = ANY(:ids)"),
        {"ids": list(image_ids)},
    )
    return [
        OldImage(row.id, ImageWish(row.ref_kind, row.ref_hash, row.ref), stored=row.state == "stored")
        for row in rows
    ]


def insert_copies(session: Session, task: IngestTask, copies: Sequence[Copy]) -> None:
    """Add the jobs, with the prompts and settings that the old ones have, and what they wait for.

    A shadow's have no cascade and use no answer cache: its model shall answer.
    """
    session.execute(
        text(
            """
            INSERT INTO jobs (id, tenant_id, batch_id, line, custom_id, model, priority, state, prompt,
                              params, image_ids, image_group, waiting_on, deadline, error_code,
                              error_message, finished_at, cache, question_hash,
                              final_model, trace)
            SELECT c.id, :tenant, :batch, old.line, old.custom_id, c.model, :priority, c.state,
                   old.prompt, old.params, CAST(c.images AS bigint[]), c.image_group, c.waiting_on, :deadline,
                   c.code, c.message, CASE WHEN c.state = 'failed' THEN now() END,
                   CASE WHEN :is_shadow THEN 0 ELSE old.cache % :vain END,
                   old.question_hash, CASE WHEN NOT :is_shadow THEN old.final_model END,
                   c.trace
            FROM unnest(CAST(:ids AS bigint[]), CAST(:olds AS bigint[]), CAST(:states AS text[]),
                        CAST(:images AS text[]), CAST(:groups AS bigint[]), CAST(:waits AS int[]),
                        CAST(:codes AS text[]), CAST(:messages AS text[]),
                        CAST(:models AS text[]), CAST(:traces AS text[]))
                 AS c(id, old_id, state, images, image_group, waiting_on, code, message, model, trace)
            JOIN jobs old ON old.id = c.old_id
            """
        ),
        {
            "batch": task.id,
            "tenant": task.tenant_id,
            "is_shadow": task.shadow is not None,
            "models": [copy.old.model for copy in copies],
            "vain": VAIN,
            "priority": task.priority,
            "deadline": task.expires_at,
            "ids": [copy.id for copy in copies],
            "olds": [copy.old.id for copy in copies],
            "states": [copy.state for copy in copies],
            # As texts: an array of arrays would need all of one length.
            "images": [f"{{{','.join(map(str, copy.image_ids))}}}" for copy in copies],
            "groups": [copy.image_ids[0] if copy.image_ids else 0 for copy in copies],
            "waits": [len(copy.waiting_on) for copy in copies],
            "codes": [copy.error.code if copy.error else None for copy in copies],
            "messages": [copy.error.message if copy.error else None for copy in copies],
            "traces": [copy.trace for copy in copies],
        },
    )
    insert_waits(session, [(image_id, copy.id) for copy in copies for image_id in copy.waiting_on])
