"""The functions that autoscalers ask: what waits is counted or estimated, and weighed by images and time."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from sqlalchemy import make_url

from app.db import Sessions
from deploy.scaling import Waiting, demand
from tests.rows import Rows

BACKLOG = "SELECT batch_id, jobs, chunks, left_s, is_patient FROM vqueue_backlog('demo', 64, 16384, 1003520)"
# Of every six lines four are of our model, and three of those ready.
MANY = """
    INSERT INTO jobs (tenant_id, batch_id, line, model, state, prompt, params, image_ids)
    SELECT 'tenant_a', 'batch_1', 10 * line, CASE WHEN line % 6 < 4 THEN 'demo' ELSE 'other' END,
           CASE WHEN line % 6 = 0 THEN 'waiting' ELSE 'ready' END, '{}', '{}', '{}'
    FROM generate_series(1, :lines) AS line
"""
PENDING = """
    INSERT INTO images (tenant_id, ref_kind, ref_hash, ref, host, state)
    SELECT 'tenant_a', :kind, :host || number, 'x', :host, 'pending' FROM generate_series(1, :count) AS number
"""


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


def backlog(rows: Rows) -> dict[str | None, Any]:
    return {row.batch_id: row for row in rows.table(BACKLOG)}


def fetch_demand(rows: Rows) -> float:
    return rows.one("SELECT vqueue_fetch_demand()")


def test_nothing_waits_in_an_empty_installation(rows: Rows) -> None:
    assert rows.one("SELECT vqueue_demand('demo')") == 0
    assert fetch_demand(rows) == 0


def test_ready_jobs_of_open_batches_wait_and_no_others(rows: Rows) -> None:
    open_batch, cancelled = rows.add_batch("batch_1"), rows.add_batch("batch_2", status="cancelling")
    rows.add_jobs(65, batch_id=open_batch)
    for state in ("waiting", "queued", "running", "completed"):
        rows.add_jobs(1, batch_id=open_batch, state=state)
    rows.add_jobs(1, batch_id=open_batch, model="other")
    rows.add_jobs(1, batch_id=cancelled)
    (found,) = rows.table(BACKLOG)
    assert (found.batch_id, found.jobs, found.chunks) == ("batch_1", 65, 2)


def test_direct_jobs_wait_and_each_interactive_one_is_a_chunk(rows: Rows) -> None:
    rows.add_jobs(65)
    rows.add_jobs(3, priority="interactive")
    assert sorted((row.jobs, row.chunks) for row in rows.table(BACKLOG)) == [(3, 3), (65, 2)]


def test_pictures_make_chunks_of_fewer_jobs(rows: Rows) -> None:
    batch = rows.add_batch()
    image = rows.add_image(width=2048, height=2048)  # 980 visual tokens, once shrunk
    rows.add_jobs(64, batch_id=batch, image_ids=[image], image_group=image)
    assert backlog(rows)[batch].chunks == 1
    for number in range(64):
        own = rows.add_image(f"{number:064}", width=640, height=512)  # 320 each
        rows.add_jobs(1, batch_id=batch, image_ids=[own], image_group=own)
    assert backlog(rows)[batch].chunks == 2
    for number in range(64, 128):
        own = rows.add_image(f"{number:064}", width=1024, height=1024)
        rows.add_jobs(1, batch_id=batch, image_ids=[own], image_group=own)
    assert backlog(rows)[batch].chunks == -(-(980 + 64 * 320 + 64 * 980) // 16384)


def test_a_batch_too_large_to_count_is_estimated_by_its_lines(rows: Rows) -> None:
    rows.add_batch(total=12_000)
    rows.run(MANY, lines=12_000)
    assert backlog(rows)["batch_1"].jobs == pytest.approx(6_000, rel=0.1)


@pytest.mark.parametrize("left_h", [0.01, 0.25, 3.0, 24.0])
@pytest.mark.parametrize("priority", ["standard", "background"])
def test_demand_weighs_by_the_time_that_is_left(rows: Rows, left_h: float, priority: str) -> None:
    batch = rows.add_batch()
    rows.add_jobs(65, batch_id=batch)
    rows.run(
        """
        UPDATE batches SET priority = :priority, created_at = now() - interval '1 hour',
                           expires_at = now() + :left * interval '1 hour'
        """,
        priority=priority,
        left=left_h,
    )
    patient = priority == "background" and left_h > 1 / 3
    expected = demand([Waiting(2, left_h * 3600, patient)], within_s=7200)
    found = rows.one("SELECT vqueue_demand('demo', within_s => 7200)")
    assert found == pytest.approx(expected, rel=0.05)


def test_downloads_wait_as_far_as_their_hosts_may_be_asked(rows: Rows) -> None:
    rows.add_tenant()
    rows.run(PENDING, kind="url", host="a.example", count=30)
    assert fetch_demand(rows) == pytest.approx(0.5)
    rows.run(PENDING, kind="url", host="b.example", count=900)
    rows.run(PENDING, kind="s3", host="", count=1200)
    assert fetch_demand(rows) == pytest.approx(0.5 + 4 + 2)
    rows.run("INSERT INTO host_pauses (host, until) VALUES ('b.example', now() + interval '1 minute')")
    assert fetch_demand(rows) == pytest.approx(0.5 + 2)


def test_a_tenant_that_has_had_its_images_of_the_day_wants_no_fetcher(rows: Rows) -> None:
    rows.add_tenant()
    rows.run("UPDATE tenants SET quota_images_day = 10")
    rows.run(PENDING, kind="url", host="a.example", count=30)
    rows.run(
        "INSERT INTO image_days (tenant_id, day, fetched, allowed) "
        "VALUES ('tenant_a', (now() AT TIME ZONE 'UTC')::date, 10, 10)"
    )
    assert fetch_demand(rows) == 0


@pytest.fixture
def asking(rows: Rows, database_url: str) -> Iterator[Any]:  # psycopg2's cursors are not typed
    """A connection of a role that was granted the functions and nothing else."""
    role, url = f"keda_{uuid4().hex[:8]}", make_url(database_url)
    rows.run(f"CREATE ROLE {role} LOGIN PASSWORD 'keda'")
    rows.run(f"GRANT EXECUTE ON FUNCTION vqueue_demand, vqueue_fetch_demand TO {role}")
    given = url.set(drivername="postgresql", username=role, password="keda")
    with closing(psycopg2.connect(given.render_as_string(hide_password=False))) as connection:
        yield connection.cursor()
    rows.run(f"DROP OWNED BY {role}")
    rows.run(f"DROP ROLE {role}")


def test_a_role_may_ask_for_the_demand_without_reading_a_table(rows: Rows, asking: Any) -> None:
    rows.add_jobs(1)
    asking.execute("SELECT vqueue_demand('demo')")
    assert asking.fetchone()[0] > 0
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        asking.execute("SELECT count(*) FROM jobs")
