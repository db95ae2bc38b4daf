"""Labels are noted with answers, named after their questions, found by index, and gone with their jobs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from app.config import DAY_S, Settings
from app.db import Sessions, transaction
from app.labels import Label
from app.retention import Retention
from app.store import labels, retention
from app.store.labels import GROUPS, Cursor, Filters, count_labels, list_labels
from app.store.records import AnswerRow, record_answers
from tests.labelled import SCHEMA, TABLE, Labelled
from tests.rows import Rows

MANY = 100_000
INDEXES = {"ix_labels_newest", "ix_labels_question", "ix_labels_batch", "ix_labels_item"}
ALL = "SELECT field, place, value, question, item, policy_version, model, batch_id FROM labels"
# As a store that has been full for a while: many labels of two tenants, over 100 days, a few reviewed.
FILL = """
    WITH made AS (
        INSERT INTO jobs (tenant_id, model, state, prompt, params, image_ids)
        SELECT CASE WHEN n % 2 = 0 THEN 'tenant_a' ELSE 'tenant_b' END, 'demo', 'completed', '{}', '{}', '{}'
        FROM generate_series(1, :many) AS n RETURNING id, tenant_id)
    INSERT INTO labels (job_id, field, place, value, tenant_id, question, item, policy_version, model,
                        created_at)
    SELECT id, '', 0, 'label ' || id % 7, tenant_id, 'question ' || id % 20, 'item ' || id, 'v' || id % 3,
           'demo', now() - (id % 100) * interval '1 day' FROM made
"""


@pytest.fixture
def labelled(db: Sessions) -> Labelled:
    return Labelled(Rows(db))


def noted(labelled: Labelled, statement: str = ALL) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, labelled.rows.table(statement)), key=repr)


def counts(labelled: Labelled, *by: str, **filters: Any) -> dict[Any, int]:
    with transaction(labelled.rows.sessions) as session:
        found = count_labels(session, "tenant_a", Filters(**filters), by=by, limit=100)
        return {one.group[0] if len(one.group) == 1 else tuple(one.group): one.labels for one in found}


def test_a_label_carries_what_it_is_found_by(labelled: Labelled) -> None:
    labelled.batch("b", policy="v7")
    labelled.answer("red", batch_id="b", custom_id="shoe:1", model="large")
    assert noted(labelled) == [("", 0, "red", None, "shoe:1", "v7", "large", "b")]


def test_a_direct_job_has_labels_too(labelled: Labelled) -> None:
    labelled.answer('{"colour": "red", "tags": ["a", "b"]}', constraint=SCHEMA)
    assert noted(labelled, "SELECT field, place, value, batch_id, question, item FROM labels") == [
        ("colour", 0, "red", None, None, None),
        ("tags", 0, "a", None, None, None),
        ("tags", 1, "b", None, None, None),
    ]


def test_a_tables_questions_are_told_apart_by_their_lines(labelled: Labelled) -> None:
    labelled.batch("b", table=TABLE)
    for custom_id in ("a:1:colour", "a:1:kind", "a:2:colour"):
        labelled.answer("red", batch_id="b", custom_id=custom_id)
    assert noted(labelled, "SELECT item, question FROM labels") == [
        ("a:1", "colour"),
        ("a:1", "kind"),
        ("a:2", "colour"),
    ]


@pytest.mark.parametrize(
    ("table", "question"),
    [
        ({"image_columns": ["i"], "questions": [{"name": "colour", "ask": "?"}]}, "colour"),
        ({"image_columns": ["i"], "question_column": "q", "questions": None}, "answer"),
    ],
)
def test_a_table_of_one_question_has_the_ids_as_they_are(
    labelled: Labelled, table: dict[str, Any], question: str
) -> None:
    labelled.batch("b", table=table)
    labelled.answer("red", batch_id="b", custom_id="7:colour")
    assert noted(labelled, "SELECT item, question FROM labels") == [("7:colour", question)]


def test_a_sweeps_jobs_say_their_question_behind_the_last_colon(labelled: Labelled) -> None:
    labelled.batch("b")
    labelled.rows.run("""UPDATE batches SET metadata = '{"vqueue_sweep": "sweep_1"}'""")
    for custom_id in ("s3://bucket/a.jpg:nudity", "plain", "a:" + "x" * 65):
        labelled.answer("red", batch_id="b", custom_id=custom_id)
    assert noted(labelled, "SELECT item, question FROM labels") == [
        ("a:" + "x" * 65, None),
        ("plain", None),
        ("s3://bucket/a.jpg", "nudity"),
    ]


def test_only_a_recorded_answer_has_labels_and_has_them_once(labelled: Labelled, db: Sessions) -> None:
    (job_id,) = labelled.rows.add_jobs(1)
    mine = {job_id: [Label("", 0, "red")]}
    with transaction(db) as session:
        labels.note_labels(session, mine)
    assert noted(labelled) == []
    labelled.rows.complete(job_id)
    for _ in range(2):
        with transaction(db) as session:
            labels.note_labels(session, mine)
    assert len(noted(labelled)) == 1


def test_the_longest_of_everything_can_be_stored(labelled: Labelled, db: Sessions) -> None:
    wide = "\U0001f600"
    labelled.batch("b", table={**TABLE, "questions": [{"name": wide * 64, "ask": "?"}]})
    (job_id,) = labelled.rows.add_jobs(1, batch_id="b", custom_id=wide * 512)
    labelled.rows.complete(job_id)
    with transaction(db) as session:
        labels.note_labels(session, {job_id: [Label(wide * 128, 1, wide * 256)]})
    assert len(noted(labelled)) == 1


def test_an_answer_and_its_labels_are_stored_together_or_not_at_all(labelled: Labelled, db: Sessions) -> None:
    (job_id,) = labelled.rows.add_jobs(1)
    labelled.rows.claim([job_id])

    def record(label: Label) -> None:
        with transaction(db) as session:
            row = AnswerRow(job_id, 1, "x", "stop", 1, 1, 1)
            assert record_answers(session, [row], model="demo", revision="r")
            labels.note_labels(session, {job_id: [label]})

    with pytest.raises(ValueError, match="NUL"):
        record(Label("", 0, "\0"))
    assert labelled.rows.states() == {job_id: "running"}
    record(Label("", 0, "x"))
    assert len(noted(labelled)) == 1


@pytest.fixture
def kept(labelled: Labelled, settings: Settings) -> Retention:
    """A batch and a direct job with reviewed labels, and one more of each."""
    for batch_id in ("old", "new"):
        labelled.batch(batch_id)
        for _ in range(3):
            labelled.answer("red", batch_id=batch_id)
    labelled.answer("red")
    labelled.answer("red")
    labelled.rows.run(
        """
        INSERT INTO reviews (job_id, field, tenant_id, verdict)
        SELECT job_id, field, tenant_id, 'confirm' FROM labels
        """
    )
    labelled.rows.run("UPDATE batches SET status = 'completed', ended_at = now()")
    return Retention(sessions=labelled.rows.sessions, settings=settings, block_rows=2)


def left(labelled: Labelled) -> list[tuple[str | None, int, int]]:
    """Batches with their labels and reviews."""
    statement = """
        SELECT l.batch_id, count(*), count(r.job_id) FROM labels l LEFT JOIN reviews r USING (job_id, field)
        GROUP BY 1 ORDER BY 1
    """
    return [tuple(row) for row in labelled.rows.table(statement)]


def test_a_deleted_batch_takes_its_labels_and_reviews_along(labelled: Labelled, kept: Retention) -> None:
    with transaction(labelled.rows.sessions) as session:
        assert retention.mark_batch(session, "tenant_a", "old")
    assert counts(labelled, "label") == {"red": 5}, "at once"
    while kept.step():
        pass
    assert left(labelled) == [("new", 3, 3), (None, 2, 2)]
    assert labelled.rows.one("SELECT count(*) FROM reviews") == 5


def test_what_is_old_goes_with_its_labels_and_reviews(labelled: Labelled, kept: Retention) -> None:
    old = f"now() - interval '{30 * DAY_S + 1} seconds'"
    labelled.rows.run(f"UPDATE batches SET ended_at = {old} WHERE id = 'old'")  # noqa: S608
    labelled.rows.run(
        f"UPDATE jobs SET finished_at = {old} WHERE id = (SELECT max(id) FROM jobs)"  # noqa: S608
    )
    while kept.step():
        pass
    assert left(labelled) == [("new", 3, 3), (None, 1, 1)]
    assert labelled.rows.one("SELECT count(*) FROM reviews") == 4


def test_a_deleted_direct_job_takes_its_labels_along(labelled: Labelled, kept: Retention) -> None:
    with transaction(labelled.rows.sessions) as session:
        last = session.execute(text("SELECT max(id) FROM jobs")).scalar_one()
        assert retention.delete_job(session, "tenant_a", last)
    assert left(labelled) == [("new", 3, 3), ("old", 3, 3), (None, 1, 1)]


def test_the_views_say_what_was_answered_and_what_is_right(labelled: Labelled) -> None:
    labelled.batch("b", policy="v1", table=TABLE)
    for custom_id in ("1:colour", "1:kind", "2:colour"):
        labelled.answer("red", batch_id="b", custom_id=custom_id, day="2026-11-29")
    labelled.rows.run(
        """
        INSERT INTO reviews (job_id, field, tenant_id, verdict, label)
        SELECT job_id, '', tenant_id, 'overturn', '"blue"' FROM labels WHERE item = '2'
        """
    )
    answers = labelled.rows.table(
        """
        SELECT tenant, item, question, label, reviewed_label, review, policy_version, text
        FROM vqueue_answers ORDER BY 2, 3
        """
    )
    assert list(map(tuple, answers)) == [
        ("tenant_a", "1", "colour", "red", "red", "none", "v1", "red"),
        ("tenant_a", "1", "kind", "red", "red", "none", "v1", "red"),
        ("tenant_a", "2", "colour", "red", "blue", "overturned", "v1", "red"),
    ]
    daily = labelled.rows.table(
        """
        SELECT day::text, question, label, answers, confirmed, overturned FROM vqueue_labels_daily ORDER BY 2
        """
    )
    assert list(map(tuple, daily)) == [
        ("2026-11-29", "colour", "red", 2, 0, 1),
        ("2026-11-29", "kind", "red", 1, 0, 0),
    ]


@pytest.fixture
def many(labelled: Labelled) -> Labelled:
    labelled.rows.add_tenant()
    labelled.rows.run(FILL, many=MANY)
    for table in ("labels", "jobs", "reviews", "batches"):
        labelled.rows.run(f"ANALYZE {table}")
    return labelled


@pytest.fixture
def plans(many: Labelled, database: Engine) -> Iterator[list[set[str]]]:
    """What each statement that follows reads: its indexes, and `all of` what tables from end to end."""
    found: list[set[str]] = []

    def explain(connection: Any, cursor: Any, statement: str, values: Any, *_: object) -> None:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
        found.append(set(nodes(cursor.fetchone()[0][0]["Plan"])))

    event.listen(database, "before_cursor_execute", explain)
    yield found
    event.remove(database, "before_cursor_execute", explain)


def nodes(plan: dict[str, Any]) -> Iterator[str]:
    if plan["Node Type"] == "Seq Scan":
        yield f"all of {plan['Relation Name']}"
    if "Index Name" in plan:
        yield plan["Index Name"]
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def test_counts_of_a_question_are_read_from_its_index(many: Labelled, plans: list[set[str]]) -> None:
    assert sum(counts(many, "label", question="question 2").values()) == MANY // 20
    assert counts(many, "day", question="question 2", label="label 3")
    assert counts(many, "label", "review", question="question 2")
    assert all("ix_labels_question" in plan and "all of jobs" not in plan for plan in plans)
    assert not any("all of labels" in plan for plan in plans)


def test_counts_of_everything_touch_no_job(many: Labelled, plans: list[set[str]]) -> None:
    for group in GROUPS:
        assert sum(counts(many, group).values()) == MANY // 2
    assert len(plans) == len(GROUPS)
    assert not any("all of jobs" in plan or "pk_jobs" in plan for plan in plans)


def test_a_page_is_read_from_an_index_wherever_it_is(many: Labelled, plans: list[set[str]]) -> None:
    with transaction(many.rows.sessions) as session:
        page = partial(list_labels, session, "tenant_a", limit=10)
        middle = Cursor(datetime.now(UTC) - timedelta(days=50), 0, "", 0)
        page(Filters(), after=None)
        page(Filters(label="label 3"), after=middle)
        page(Filters(batch_id="b"), after=middle)
        page(Filters(item="item 8"), after=None)
    used = [plan & INDEXES for plan in plans]
    assert used == [{"ix_labels_newest"}, {"ix_labels_newest"}, {"ix_labels_batch"}, {"ix_labels_item"}]
    assert not any("all of labels" in plan for plan in plans)
