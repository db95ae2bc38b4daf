"""The images of sweeps: listed page by page, compared by version, and what each was asked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.orm import Session


@dataclass(frozen=True)
class Listed:
    """An image as its source shows it now; `version` is another one whenever the image may be another."""

    key: str
    ref: str
    version: str
    cells: Mapping[str, str] = field(default_factory=dict)  # of the columns that questions name


@dataclass(frozen=True)
class Item:
    """An image that is to be looked at; `asked` are the questions that stand answered, by their hashes."""

    key: str
    ref: str
    asked: Mapping[str, str]
    cells: Mapping[str, str]


@dataclass(frozen=True)
class StaleItem:
    key: str
    ref: str
    content_hash: str | None


@dataclass(frozen=True)
class Answered:
    """Answers to questions about one image, and the hashes of these questions."""

    key: str
    content_hash: str | None
    asked: Mapping[str, str]
    answers: Mapping[str, str]


@dataclass(frozen=True)
class AnsweredJob:
    line: int
    custom_id: str
    text: str
    content_hash: str | None


@dataclass(frozen=True)
class BatchEnd:
    """How a batch stands; one that is gone has ended."""

    ended: bool
    status: str
    completed: int
    failed: int


@dataclass(frozen=True)
class ChangeRow:
    key: str
    question: str
    before: str
    after: str


def see(session: Session, sweep_id: str, run_id: str, attempt: int, listed: Sequence[Listed]) -> None:
    """Note what a page of the source shows. Of a key that comes twice in one listing the first counts.

    A version that differs makes an item stale until it is asked again, whatever becomes of this run.
    """
    session.execute(
        text(
            """
            INSERT INTO sweep_items AS known
                (sweep_id, key, ref, version, cells, change, seen_run, seen_attempt)
            SELECT :sweep, key, ref, version, CAST(cells AS jsonb), 'new', :run, :attempt
            FROM unnest(CAST(:keys AS text[]), CAST(:refs AS text[]), CAST(:versions AS text[]),
                        CAST(:cells AS text[])) AS page(key, ref, version, cells)
            ON CONFLICT (sweep_id, key) DO UPDATE SET
                change = CASE
                    WHEN known.seen_run = :run AND known.change = 'new' THEN 'new'
                    WHEN known.version <> EXCLUDED.version THEN 'changed'
                    WHEN known.deleted_at IS NOT NULL THEN 'new'
                    WHEN known.seen_run = :run THEN known.change
                    ELSE 'unchanged' END,
                stale = known.stale OR known.version <> EXCLUDED.version,
                ref = EXCLUDED.ref, version = EXCLUDED.version, cells = EXCLUDED.cells,
                seen_run = :run, seen_attempt = :attempt, deleted_at = NULL
            WHERE (known.seen_run, known.seen_attempt) <> (:run, :attempt)
            """
        ),
        {
            "sweep": sweep_id,
            "run": run_id,
            "attempt": attempt,
            "keys": [one.key for one in listed],
            "refs": [one.ref for one in listed],
            "versions": [one.version for one in listed],
            "cells": [json.dumps(dict(one.cells)) for one in listed],
        },
    )


def mark_missing(session: Session, sweep_id: str, run_id: str, attempt: int) -> None:
    """What the whole listing did not show is deleted."""
    session.execute(
        text(
            """
            UPDATE sweep_items SET deleted_at = now(), seen_run = :run, change = 'deleted'
            WHERE sweep_id = :sweep AND (seen_run, seen_attempt) <> (:run, :attempt) AND deleted_at IS NULL
            """
        ),
        {"sweep": sweep_id, "run": run_id, "attempt": attempt},
    )


def count_changes(session: Session, sweep_id: str, run_id: str) -> dict[str, int]:
    """How many images a run found new, changed, unchanged and deleted."""
    rows = session.execute(
        text(
            """
            SELECT CASE WHEN stale AND change = 'unchanged' THEN 'changed' ELSE change END, count(*)
            FROM sweep_items WHERE sweep_id = :sweep AND seen_run = :run
            GROUP BY 1
            """
        ),
        {"sweep": sweep_id, "run": run_id},
    )
    return {row[0]: row[1] for row in rows}


def read_items(session: Session, sweep_id: str, *, after: str, limit: int) -> list[Item]:
    """What the source has, by key; nothing stands answered of a stale one."""
    rows = session.execute(
        text(
            """
            SELECT key, ref, CASE WHEN stale THEN '{}' ELSE asked END, cells FROM sweep_items
            WHERE sweep_id = :sweep AND key > :after COLLATE "C" AND deleted_at IS NULL
            ORDER BY key LIMIT :limit
            """
        ),
        {"sweep": sweep_id, "after": after, "limit": limit},
    )
    return [Item(*row) for row in rows]


def read_cells(session: Session, sweep_id: str, keys: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """What the columns held that questions about these name, by key."""
    rows = session.execute(
        text("SELECT key, cells FROM sweep_items WHERE sweep_id = :sweep AND key = ANY(:keys)"),
        {"sweep": sweep_id, "keys": list(keys)},
    )
    return {row.key: row.cells for row in rows}


def read_stale(session: Session, sweep_id: str, *, after: str, limit: int) -> list[StaleItem]:
    """Those whose version differs from the one that was asked about, by key."""
    rows = session.execute(
        text(
            """
            SELECT key, ref, CASE WHEN asked = '{}' THEN NULL ELSE content_hash END FROM sweep_items
            WHERE sweep_id = :sweep AND key > :after COLLATE "C" AND stale AND deleted_at IS NULL
            ORDER BY key LIMIT :limit
            """
        ),
        {"sweep": sweep_id, "after": after, "limit": limit},
    )
    return [StaleItem(*row) for row in rows]


def note_same(session: Session, sweep_id: str, keys: Sequence[str]) -> None:
    """Of these another version has the same content: what was answered stands."""
    session.execute(
        text(
            """
            UPDATE sweep_items SET stale = false, change = 'unchanged'
            WHERE sweep_id = :sweep AND key = ANY(:keys)
            """
        ),
        {"sweep": sweep_id, "keys": list(keys)},
    )


def forget_stored(session: Session, tenant_id: str, ref_hashes: Sequence[str]) -> None:
    """Let no job take what was stored of these references before: their images have changed since."""
    session.execute(
        text(
            """
            UPDATE images SET stored_at = '-infinity'
            WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes) AND state = 'stored'
              AND ref_kind IN ('s3', 'url')
            """
        ),
        {"tenant": tenant_id, "hashes": list(ref_hashes)},
    )


def read_fetched(session: Session, tenant_id: str, ref_hashes: Sequence[str]) -> dict[str, str | None]:
    """What was fetched of these lately: content hashes, None where it could not be.

    Others are on their way.
    """
    rows = session.execute(
        text(
            """
            SELECT DISTINCT ON (ref_hash) ref_hash, content_hash, state FROM images
            WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes)
            ORDER BY ref_hash, id DESC
            """
        ),
        {"tenant": tenant_id, "hashes": list(ref_hashes)},
    )
    return {row.ref_hash: row.content_hash for row in rows if row.state in ("stored", "failed")}


def read_end(session: Session, batch_id: str) -> BatchEnd:
    row = session.execute(
        text("SELECT ended_at IS NOT NULL, status, completed, failed FROM batches WHERE id = :id"),
        {"id": batch_id},
    ).one_or_none()
    return BatchEnd(*row) if row else BatchEnd(True, "deleted", 0, 0)


def read_answers(session: Session, batch_id: str, *, after: int, limit: int) -> list[AnsweredJob]:
    """A batch's answers, by line."""
    rows = session.execute(
        text(
            """
            SELECT j.line, j.custom_id, a.text, i.content_hash
            FROM jobs j JOIN answers a ON a.job_id = j.id LEFT JOIN images i ON i.id = j.image_ids[1]
            WHERE j.batch_id = :batch AND j.line > :after AND j.state = 'completed'
            ORDER BY j.line LIMIT :limit
            """
        ),
        {"batch": batch_id, "after": after, "limit": limit},
    )
    return [AnsweredJob(*row) for row in rows]


def note_answers(session: Session, sweep_id: str, run_id: str, answered: Sequence[Answered]) -> int:
    """Note what was answered, and which answers are other than those before; how many of these."""
    given = [
        {"key": one.key, "hash": one.content_hash, "asked": one.asked, "answers": one.answers}
        for one in answered
    ]
    rows = session.execute(
        text(
            """
            WITH given AS (
                SELECT * FROM json_to_recordset(CAST(:given AS json))
                    AS given(key text, hash text, asked jsonb, answers jsonb)),
            held AS (
                SELECT given.*, known.answers AS before FROM given
                JOIN sweep_items known ON known.sweep_id = :sweep AND known.key = given.key COLLATE "C"
                ORDER BY given.key FOR UPDATE OF known),
            noted AS (
                UPDATE sweep_items SET
                    asked = CASE WHEN stale THEN held.asked ELSE sweep_items.asked || held.asked END,
                    answers = sweep_items.answers || held.answers, stale = false,
                    content_hash = coalesce(held.hash, content_hash)
                FROM held WHERE sweep_id = :sweep AND sweep_items.key = held.key)
            INSERT INTO sweep_changes (run_id, key, question, before, after)
            SELECT :run, held.key, now.key, held.before->>now.key, now.value
            FROM held, jsonb_each_text(held.answers) AS now
            WHERE held.before->>now.key IS DISTINCT FROM now.value AND held.before ? now.key
            ON CONFLICT DO NOTHING RETURNING 1
            """
        ),
        {"sweep": sweep_id, "run": run_id, "given": json.dumps(given)},
    )
    return len(rows.all())


def list_changes(session: Session, run_id: str, *, after: tuple[str, str], limit: int) -> list[ChangeRow]:
    """A page of a run's differing answers, by key and question."""
    rows = session.execute(
        text(
            """
            SELECT key, question, before, after FROM sweep_changes
            WHERE run_id = :run AND (key, question) > (:key COLLATE "C", :question COLLATE "C")
            ORDER BY key, question LIMIT :limit
            """
        ),
        {"run": run_id, "key": after[0], "question": after[1], "limit": limit},
    )
    return [ChangeRow(*row) for row in rows]
