"""The page of operations: everybody's as numbers, one's own jobs, and nothing of other tenants."""

import html
import re

from app.db import Sessions, transaction
from app.store import workers
from tests.console import Visitor
from tests.rows import Rows


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
    assert re.search(r" w1 demo r1 3 \d\.\d s ago ", text_of(visitor, "workers"))
    rows.run("UPDATE workers SET heartbeat_at = now() - interval '2 hours'")
    assert "silent for 2 h" in text_of(visitor, "workers")


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
