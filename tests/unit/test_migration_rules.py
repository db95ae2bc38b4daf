"""What older processes cannot live with is found in a migration's SQL, and what only adds is let through."""

import pytest

from app.migrate import scripts
from deploy.migration_rules import faults


def test_revisions_are_numbers_of_four_digits_so_that_a_newer_one_is_known() -> None:
    revisions = [script.revision for script in scripts().walk_revisions()]
    assert all(len(revision) == 4 and revision.isdecimal() for revision in revisions)
    assert revisions == sorted(revisions, reverse=True)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DROP TABLE labels", "contract"),
        ("DROP VIEW vqueue_answers", "contract"),
        ("ALTER TABLE jobs DROP COLUMN note", "contract"),
        ("ALTER TABLE jobs RENAME note TO remark", "old name"),
        ("ALTER TABLE jobs RENAME TO tasks", "old name"),
        ("DROP INDEX ix_jobs_image", "contract"),
        ("ALTER TABLE jobs ALTER COLUMN note SET NOT NULL", "write NULL"),
        ("ALTER TABLE jobs ALTER COLUMN line TYPE BIGINT", "rewrites"),
        ("ALTER TABLE jobs ADD COLUMN note TEXT NOT NULL", "add a default"),
        ("ALTER TABLE jobs ADD COLUMN at TIMESTAMP DEFAULT clock_timestamp() NOT NULL", "rewrites"),
        ("ALTER TABLE jobs ADD COLUMN n BIGINT GENERATED ALWAYS AS IDENTITY", "rewrites"),
        ("ALTER TABLE jobs ADD CONSTRAINT positive CHECK (line > 0)", "NOT VALID"),
        ("CREATE INDEX ix_jobs_note ON jobs (note)", "CONCURRENTLY"),
        ("CREATE UNIQUE INDEX CONCURRENTLY uq_jobs_note ON jobs (note)", "twice"),
        ("UPDATE jobs SET note = ''", "blocks"),
        ("LOCK TABLE jobs", "nobody can write"),
    ],
)
def test_what_older_processes_cannot_live_with_is_found(statement: str, why: str) -> None:
    (told,) = faults([statement])
    assert why in told


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE jobs ADD COLUMN note TEXT",
        "ALTER TABLE jobs ADD COLUMN note TEXT DEFAULT '' NOT NULL",
        "ALTER TABLE jobs ADD COLUMN at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL",
        "ALTER TABLE jobs ADD CONSTRAINT positive CHECK (line > 0) NOT VALID",
        "CREATE INDEX CONCURRENTLY ix_jobs_note ON jobs (note)",
        "CREATE VIEW more AS SELECT 1",
    ],
)
def test_what_only_adds_is_let_through(statement: str) -> None:
    assert faults([statement]) == []


def test_a_migration_locks_one_table_lest_it_wait_for_those_who_wait_for_it() -> None:
    (told,) = faults([f"ALTER TABLE {table} ADD COLUMN note TEXT" for table in ("jobs", "batches")])
    assert told.startswith("it locks batches, jobs at once")


def test_a_migration_does_as_it_likes_with_tables_of_its_own() -> None:
    made = "\nCREATE TABLE notes (\n\tid BIGINT NOT NULL\n)\n"
    assert faults([made, "CREATE UNIQUE INDEX uq_notes ON notes (id)", "UPDATE notes SET id = 1"]) == []
