"""The pages of sweeps: stuck ones first, runs page by page, and what has changed."""

import html
import json
import re

import pytest

from app.auth import Keys
from app.db import Sessions
from tests.console import Visitor, visiting
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"
HASH = "a" * 64


def add_sweep(rows: Rows, name: str = "nightly", *, ask: str = "What colour?") -> str:
    rows.run(
        """
        INSERT INTO sweeps (id, tenant_id, name, source, questions, policy_version, model, body, cron, zone,
                            completion_window, batch, alert_after_s, next_due_at)
        VALUES (:name, :tenant, :name, '{"kind": "bucket", "prefix": "s3://photos/in/"}',
                CAST(:questions AS json), '1', 'demo', '{}', '30 2 * * *', 'Europe/Berlin', '24h', '{}', 3600,
                '2030-01-02 01:30Z')
        """,
        name=name,
        tenant=rows.tenant,
        questions=json.dumps([{"name": "colour", "ask": ask}]),
    )
    return name


def add_run(rows: Rows, run_id: str = "run_1", *, sweep: str = "nightly", state: str = "completed") -> str:
    rows.run(
        """
        INSERT INTO sweep_runs (id, sweep_id, kind, due_at, state, policy_version, started_at, ended_at,
                                listed, new, changed, asked, completed, differing, batch_ids)
        VALUES (:id, :sweep, 'scheduled', now() + :number * interval '1 second', :state, '1', now(),
                CASE WHEN :state IN ('completed', 'failed') THEN now() END, 9, 3, 2, 5, 4, 1,
                ARRAY['batch_' || :id])
        """,
        id=run_id,
        sweep=sweep,
        state=state,
        number=rows.one("SELECT count(*) FROM sweep_runs"),
    )
    return run_id


def add_change(rows: Rows, key: str = "a.jpg", before: str = "red", after: str = "blue") -> None:
    rows.run(
        "INSERT INTO sweep_changes VALUES ('run_1', :key, 'colour', :before, :after)",
        key=key,
        before=before,
        after=after,
    )


def plain(page: str) -> str:
    """Its text, without marks."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_without_sweeps_the_list_says_what_to_do(visitor: Visitor) -> None:
    assert "vqueue sweep create" in visitor.get("/sweeps").text


def test_the_list_tells_when_each_runs_and_what_it_found(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, sweep=add_sweep(rows))
    page = plain(visitor.get("/sweeps").text)
    for text in (
        "s3://photos/in/",
        "Every day at 02:30",
        "Europe/Berlin",
        "2030-01-02 01:30",
        "3 new",
        "2 changed",
    ):
        assert text in page


def test_the_newest_run_is_the_one_that_is_shown(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, "run_1", sweep=add_sweep(rows))
    add_run(rows, "run_2", state="running")
    rows.run("UPDATE sweep_runs SET created_at = now() + interval '1 hour' WHERE id = 'run_2'")
    page = visitor.get("/sweeps").text
    assert ("runs/run_2" in page, "runs/run_1" in page) == (True, False)


def test_what_stands_still_comes_first_whatever_page_it_is_on(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, "run_old", sweep=add_sweep(rows, "oldest"), state="running")
    rows.run("UPDATE sweep_runs SET stalled_at = now()")
    rows.run("UPDATE sweeps SET created_at = now() - interval '1 day'")
    for number in range(25):
        add_sweep(rows, f"sweep-{number}")
    page = visitor.get("/sweeps").text
    assert page.index("/sweeps/oldest") < page.index("/sweeps/sweep-")
    assert page.count("/sweeps/oldest/runs/run_old") == 1
    older = visitor.get("/sweeps", after=re.findall(r"\?after=([^\"]+)", page)[0]).text
    assert 'class="stuck-row"' in older


def test_what_stood_still_and_has_ended_is_not_stuck(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, sweep=add_sweep(rows))
    rows.run("UPDATE sweep_runs SET stalled_at = now()")
    page = visitor.get("/sweeps").text
    assert ("stuck-row" in page, "stuck-title" in page) == (False, False)
    assert 'role="alert"' not in visitor.get("/sweeps/nightly").text


def test_a_sweep_tells_what_the_last_run_changed(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, sweep=add_sweep(rows))
    add_change(rows)
    rows.add_image(HASH)
    rows.run(
        """
        INSERT INTO sweep_items (sweep_id, key, ref, version, content_hash, change, seen_run, seen_attempt)
        VALUES ('nightly', 'a.jpg', 's3://photos/in/a.jpg', '1', :hash, 'changed', 'run_1', 1)
        """,
        hash=HASH,
    )
    for path in ("/sweeps/nightly", "/sweeps/nightly/runs/run_1"):
        page = visitor.get(path).text
        assert "Before: red → After: blue" in plain(page)
        assert f"/{HASH}/320?until=" in page
        assert "/batches/batch_run_1" in page


def test_changes_go_on_where_a_page_ended(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, sweep=add_sweep(rows))
    for number in range(53):
        add_change(rows, f"a{number:03}.jpg")
    first = visitor.get("/sweeps/nightly/runs/run_1").text
    link = re.search(r'href="([^"]+)" rel="next"', first)
    assert link is not None
    second = visitor.get(html.unescape(link[1])).text
    shown = [re.findall(r"<code>(a\d+\.jpg)</code>", page) for page in (first, second)]
    assert ([len(one) for one in shown], set(shown[0]) & set(shown[1])) == ([50, 3], set())


def test_runs_go_on_where_a_page_ended(visitor: Visitor, rows: Rows) -> None:
    add_sweep(rows)
    for number in range(22):
        add_run(rows, f"run_{number:02}")
    first = visitor.get("/sweeps/nightly").text
    link = re.search(r'href="([^"]+)" rel="next"', first)
    assert link is not None
    shown = [set(re.findall(r"runs/(run_\d+)\"><time", page)) for page in (first, visitor.get(link[1]).text)]
    assert ([len(one) for one in shown], shown[0] & shown[1]) == ([20, 2], set())


def test_a_sweep_is_paused_resumed_and_run_from_its_page(visitor: Visitor, rows: Rows) -> None:
    add_sweep(rows)
    answers = [visitor.post("/sweeps/nightly/pause")]
    assert rows.one("SELECT paused_at IS NOT NULL FROM sweeps")
    answers.append(visitor.post("/sweeps/nightly/resume"))
    assert rows.one("SELECT paused_at IS NULL FROM sweeps")
    answers.append(visitor.post("/sweeps/nightly/run"))
    assert rows.all("SELECT kind FROM sweep_runs") == ["manual"]
    assert {answer.headers["location"] for answer in answers} == {"/sweeps/nightly"}


def test_who_may_only_look_changes_nothing(api_url: str, db: Sessions, rows: Rows) -> None:
    add_sweep(rows)
    key = Keys(sessions=db).create(tenant="Ada", name="looks", scopes=["read"]).secret
    with visiting(api_url, key) as visitor:
        assert 'action="/sweeps/' not in visitor.get("/sweeps/nightly").text
        assert {visitor.post(f"/sweeps/nightly/{do}").status_code for do in ("pause", "resume", "run")} == {
            403
        }
    assert rows.one("SELECT count(*) FROM sweep_runs") == 0


@pytest.mark.parametrize("path", ["/sweeps/theirs", "/sweeps/theirs/runs/run_1"])
def test_another_tenants_sweep_is_not_found(visitor: Visitor, rows: Rows, path: str) -> None:
    rows.tenant = rows.add_tenant("tenant_b")
    add_run(rows, sweep=add_sweep(rows, "theirs"), state="running")
    rows.run("UPDATE sweep_runs SET stalled_at = now()")
    assert visitor.get(path).status_code == 404
    assert visitor.post("/sweeps/theirs/run").status_code == 404
    assert "theirs" not in visitor.get("/sweeps").text


def test_nothing_that_a_sweep_says_is_markup(visitor: Visitor, rows: Rows) -> None:
    add_run(rows, sweep=add_sweep(rows, ask=EVIL), state="failed")
    rows.run("UPDATE sweep_runs SET error_code = 'source_refused', error_message = :evil", evil=EVIL)
    add_change(rows, EVIL, EVIL, EVIL)
    for path in ("/sweeps", "/sweeps/nightly", "/sweeps/nightly/runs/run_1"):
        page = visitor.get(path).text
        assert "<script>" not in page
        assert "&lt;script&gt;" in page or path == "/sweeps"
