"""The page of operations: everybody's as numbers, one's own jobs, and nothing of other tenants."""

import html
import re
from contextlib import closing

import pytest

from app.config import Settings
from app.console.operations import OperationsBoard
from app.db import Sessions, make_engine, transaction
from app.store import operations, workers
from tests.console import Visitor
from tests.rows import Rows
from workers.engine.base import FeatureTier
from workers.leases import Leases
from workers.observe import EngineMetrics


def text_of(visitor: Visitor, part: str) -> str:
    page = visitor.get("/operations").text
    found = page[page.index(f'<section id="{part}"') :]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", found[: found.index("</section>")])))


def announce(db: Sessions, revision: str = "r1") -> None:
    with transaction(db) as session:
        workers.register(session, worker="w1", role="worker", model="demo", revision=revision)


def test_an_idle_installation_says_so(visitor: Visitor) -> None:
    assert "Nothing is on the queues" in text_of(visitor, "lanes")
    assert "No worker serves a model" in text_of(visitor, "workers")
    assert "Dispatcher: down" in text_of(visitor, "glance")


def test_a_worker_tells_what_it_runs(visitor: Visitor, rows: Rows, db: Sessions) -> None:
    announce(db)
    rows.claim(rows.add_jobs(3))
    assert re.search(r" w1 demo r1 3 – – \d\.\d s ago ", text_of(visitor, "workers"))
    rows.run("UPDATE workers SET heartbeat_at = now() - interval '2 hours'")
    assert "silent for 2 h" in text_of(visitor, "workers")


def test_a_heartbeat_tells_how_full_steps_are_and_what_the_feature_cache_saves(
    visitor: Visitor, db: Sessions, settings: Settings
) -> None:
    for model in ("filled", "idle"):
        with transaction(db) as session:
            workers.register(session, worker="w1", role="worker", model=model, revision="r1")
    leases, metrics = Leases(sessions=db, worker="w1", settings=settings), EngineMetrics("filled")
    for rows in (4, 2):
        metrics.stepped(rows=rows, row_limit=4, joined=0, prompt_tokens=0, cached_tokens=0, seconds=0.1)
    metrics.features_read(tier=FeatureTier.MISS, size=0, visual_tokens=9, seconds=70.0)
    leases.step()
    found = text_of(visitor, "workers")
    saved = "0 s look-ups took 1 min 10 s more than they spared so far"
    assert re.search(rf" w1 filled r1 0 75.0 % {saved} \d\.\d s ago ", found)
    assert re.search(r" w1 idle r1 0 – – ", found)


def test_jobs_that_are_not_sent_are_told_apart_from_those_of_others(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch("batch_mine")
    rows.run("UPDATE batches SET created_at = '2026-11-01 10:00Z'")
    for state, count in {"ready": 2, "waiting": 1, "queued": 4, "running": 1}.items():
        rows.add_jobs(count, state=state, batch_id="batch_mine")
    rows.add_jobs(1, state="ready")
    rows.tenant = "tenant_b"
    rows.add_batch("batch_theirs")
    rows.add_jobs(5, state="waiting", batch_id="batch_theirs")
    rows.run("UPDATE batches SET created_at = '2026-10-31 09:00Z' WHERE id = 'batch_theirs'")
    said = "Not sent yet {} Ready 3 Waiting {} Oldest not sent {}"
    assert said.format(4, 1, "2026-11-01 10:00 UTC") in text_of(visitor, "own")
    assert said.format(9, 6, "2026-10-31 09:00 UTC") in text_of(visitor, "glance")


def test_of_very_many_ready_jobs_some_are_counted(rows: Rows, db: Sessions) -> None:
    rows.add_batch("batch_mine")
    rows.add_jobs(3, state="ready", batch_id="batch_mine")
    with transaction(db) as session:
        found = operations.count_unsent(session, cap=2)
    assert (found.jobs, found.ready, found.is_capped, found.waiting) == (3, 2, True, None)


@pytest.mark.parametrize(("live_s", "is_up"), [(60.0, True), (0.0, False)], ids=["speaks", "hangs"])
def test_a_process_that_keeps_its_connections_and_says_nothing_is_down(
    db: Sessions, settings: Settings, live_s: float, is_up: bool
) -> None:
    announce(db)
    engine = make_engine(settings.database_url.get_secret_value(), pool_size=1, application="dispatcher")
    with closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 1")
        up = OperationsBoard(sessions=db, live_s=live_s).read("tenant_a").up
    engine.dispose()
    assert (up["dispatcher"], up["worker"]) == (is_up, is_up)


def test_jobs_of_others_are_numbers_and_nothing_else(visitor: Visitor, rows: Rows) -> None:
    rows.add_jobs(1, state="queued")
    rows.tenant = "tenant_b"
    rows.add_batch("batch_theirs")
    rows.add_jobs(2, state="queued", batch_id="batch_theirs")
    assert " demo standard 3 0 " in text_of(visitor, "lanes")
    assert " demo standard 1 0 " in text_of(visitor, "own")
    page = visitor.get("/operations").text
    assert ("tenant_b" in page, "batch_theirs" in page) == (False, False)


def test_nothing_that_a_worker_says_is_markup(visitor: Visitor, db: Sessions, rows: Rows) -> None:
    announce(db, "<script>1")
    page = visitor.get("/operations").text
    assert ("<script>1" in page, "&lt;script&gt;1" in page) == (False, True)
