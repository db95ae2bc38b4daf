"""Migrations over rows that are there, and beside processes that work on them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import Script
from sqlalchemy import Engine, event, text

from app.db import make_engine
from app.migrate import Blocked, current_revision, drift, migrate, newest_revision, scripts
from deploy.migration_rules import faults
from tests.servers import Databases
from tests.waiting import eventually

MIGRATIONS = Path(__file__).parents[2] / "migrations"
# Everything up to here is in the first release: no process is older than it, and its tables were empty.
FIRST_RELEASE = "0019"
JOBS = """
    INSERT INTO jobs (tenant_id, batch_id, line, state, prompt, error_code, error_message, finished_at,
                      custom_id, model, params, image_ids)
    SELECT 't', batch_id, line, state, CAST(prompt AS json), code, message,
           '2026-01-01'::timestamptz + minute * interval '1 minute', 'r' || line, 'demo', '{}', '{}'
    FROM (VALUES ('ended', 1, 'completed', '[1]', NULL, NULL, 2),
                 ('ended', 2, 'failed', '[1]', 'not_found', '404', 1),
                 ('ended', 3, 'failed', '{}', 'invalid_json_line', 'bad', 0),
                 ('ended', 4, 'failed', '[1]', 'not_found', '410', 3),
                 ('ended', 5, 'cancelled', '[1]', NULL, NULL, 4),
                 ('open', 1, 'completed', '[1]', NULL, NULL, 0),
                 ('open', 2, 'ready', '[1]', NULL, NULL, NULL),
                 (NULL, NULL, 'failed', '[1]', 'not_found', '404', 0))
        AS row(batch_id, line, state, prompt, code, message, minute)
"""
IMAGE = """
    INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, state) VALUES ('t', 'url', 'h', 'u', 'failed')
"""

WAITING = "SELECT count(*) FROM pg_locks WHERE relation = 'reviews'::regclass AND NOT granted"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database of 0002 with an ended and an open batch, a direct job, a file and an image."""
    databases = Databases(database_url)
    url = databases.create()
    engine = make_engine(url, pool_size=1, application="tests")
    migrate(engine, "0002")
    run(engine, "INSERT INTO tenants (id, name) VALUES ('t', 't')")
    run(
        engine,
        """
        INSERT INTO batches (id, tenant_id, status, ending, endpoint, input_file_id, completion_window,
                             request_hash, total, completed, failed, expires_at, cancelled_at)
        VALUES ('ended', 't', 'cancelled', 'cancelled', '/v1', 'f', '24h', 'h', 5, 1, 4, now(), '2026-01-02'),
               ('open', 't', 'in_progress', NULL, '/v1', 'f', '24h', 'h', 2, 1, 0, now(), NULL)
        """,
    )
    run(engine, JOBS)
    run(engine, IMAGE)
    yield engine
    engine.dispose()
    databases.drop(url)


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def rows(engine: Engine, statement: str) -> Sequence[Any]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def downgrade(engine: Engine, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def test_ended_batches_know_when(engine: Engine) -> None:
    migrate(engine)
    found = rows(engine, "SELECT id, ended_at = cancelled_at, bad_lines FROM batches ORDER BY id")
    assert found == [("ended", True, 1), ("open", None, 0)]


def test_jobs_that_have_ended_are_numbered_in_the_order_of_their_ends(engine: Engine) -> None:
    migrate(engine)
    found = rows(engine, "SELECT batch_id, seq, job_ids FROM results ORDER BY batch_id")
    assert found == [("ended", 5, [3, 2, 1, 4, 5]), ("open", 1, [6])]


def test_errors_are_counted_by_code_with_the_first_ones_message(engine: Engine) -> None:
    migrate(engine)
    found = rows(engine, "SELECT batch_id, code, jobs, line, message FROM batch_errors ORDER BY code")
    assert found == [("ended", "invalid_json_line", 1, 3, "bad"), ("ended", "not_found", 2, 2, "404")]


def test_the_way_back_and_up_again_loses_no_row(engine: Engine) -> None:
    tables = ("batches", "jobs", "images", "tenants")
    before = [rows(engine, f"SELECT count(*) FROM {table}") for table in tables]  # noqa: S608
    migrate(engine)
    filled = rows(engine, "SELECT * FROM results ORDER BY batch_id")
    downgrade(engine, "0002")
    assert current_revision(engine) == "0002"
    assert [rows(engine, f"SELECT count(*) FROM {table}") for table in tables] == before  # noqa: S608
    migrate(engine)
    assert drift(engine) == []
    assert rows(engine, "SELECT * FROM results ORDER BY batch_id") == filled


def test_the_way_back_leaves_the_schema_that_was_there(engine: Engine) -> None:
    before = schema(engine)
    migrate(engine)
    downgrade(engine, "0002")
    assert schema(engine) == before


def test_a_schema_of_a_newer_version_is_left_as_it_is(engine: Engine) -> None:
    run(engine, "UPDATE alembic_version SET version_num = '9999'")
    migrate(engine)
    assert current_revision(engine) == "9999"


def test_a_table_that_others_read_is_not_waited_for_long_and_the_next_try_goes_on(engine: Engine) -> None:
    others = make_engine(engine.url.render_as_string(hide_password=False), pool_size=1, application="tests")
    migrate(engine, "0013")
    with others.begin() as reader:
        reader.execute(text("LOCK TABLE labels IN ACCESS SHARE MODE"))
        with pytest.raises(Blocked):
            migrate(engine, tries=1)
    others.dispose()
    assert current_revision(engine) == "0014", "each migration is a transaction of its own"
    migrate(engine)
    assert current_revision(engine) == newest_revision()


def test_a_deadlock_with_a_process_at_work_is_tried_again(engine: Engine) -> None:
    """0015 has `labels` when it wants `reviews`; somebody has these, and then wants those."""
    others = make_engine(engine.url.render_as_string(hide_password=False), pool_size=1, application="tests")
    migrate(engine, "0014")
    with ThreadPoolExecutor(1) as pool, others.begin() as worker:
        worker.execute(text("SET LOCAL deadlock_timeout = '60s'"))  # so that the migration is the one to end
        worker.execute(text("LOCK TABLE reviews IN ACCESS EXCLUSIVE MODE"))
        migrated = pool.submit(migrate, engine, "0015")
        eventually(lambda: worker.execute(text(WAITING)).scalar_one())
        worker.execute(text("SELECT count(*) FROM labels"))
        worker.commit()
        migrated.result(timeout=60)
    others.dispose()
    assert current_revision(engine) == "0015"


def test_migrations_take_nothing_away_from_processes_of_the_release_before(engine: Engine) -> None:
    """One that contracts says in `CONTRACTS` since which release nobody uses what it takes away."""
    migrate(engine, FIRST_RELEASE)
    later = [script for script in scripts().walk_revisions() if script.revision > FIRST_RELEASE]
    found = {script.revision: faults_of(engine, script) for script in reversed(later)}
    assert not any(found.values()), found


def faults_of(engine: Engine, script: Script) -> list[str]:
    """What is wrong with the statements that this migration runs."""
    statements: list[str] = []

    def note(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(engine, "before_cursor_execute", note)
    migrate(engine, script.revision)
    event.remove(engine, "before_cursor_execute", note)
    own = (statement for statement in statements if "alembic_version" not in statement)
    return [] if getattr(script.module, "CONTRACTS", "") else faults(own)


def schema(engine: Engine) -> Sequence[Any]:
    """Columns, indexes and settings of all tables."""
    return [
        rows(
            engine,
            "SELECT table_name, column_name, data_type, column_default, is_nullable "
            "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2",
        ),
        rows(engine, "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"),
        rows(
            engine,
            "SELECT relname, reloptions FROM pg_class WHERE relkind = 'r' AND relnamespace = "
            "'public'::regnamespace ORDER BY 1",
        ),
    ]
