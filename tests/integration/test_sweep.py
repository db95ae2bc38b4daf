"""A batch that cannot be swept keeps no other waiting; one that did not pass is not closed as well."""

import pytest

from app.db import Sessions, transaction
from app.store import batches, endings
from app.sweep import Sweeper
from app.troubled import REST_S
from tests.rows import Rows


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


@pytest.fixture
def troubled(rows: Rows) -> str:
    """A cancelled batch whose journal already has the number that its sweep would give."""
    rows.add_jobs(2, batch_id=rows.add_batch("batch_1", status="cancelling"))
    rows.run("UPDATE batches SET ending = 'cancelled'")
    rows.run("INSERT INTO results (batch_id, seq, job_ids) VALUES ('batch_1', 2, '{1}')")
    return "batch_1"


def test_a_batch_whose_sweep_fails_keeps_no_other_waiting(db: Sessions, rows: Rows, troubled: str) -> None:
    rows.add_jobs(2, batch_id=rows.add_batch("batch_2", status="cancelling"))
    rows.run("UPDATE batches SET ending = 'cancelled'")
    sweeper = Sweeper(sessions=db)
    while sweeper.step():
        pass
    assert rows.counts("batch_2") == (2, 0, 2)
    assert rows.counts(troubled) == (2, 0, 0)


def test_a_batch_whose_sweep_failed_is_tried_again(db: Sessions, rows: Rows, troubled: str) -> None:
    now = 0.0
    sweeper = Sweeper(sessions=db, clock=lambda: now)
    sweeper.step()
    rows.run("DELETE FROM results")
    assert not sweeper.step(), "it is left alone for a while"
    now = REST_S + 1
    assert sweeper.step()
    assert rows.counts(troubled) == (2, 0, 2)


def test_a_batch_whose_file_did_not_pass_is_neither_cancelled_nor_expired(db: Sessions, rows: Rows) -> None:
    batch_id = rows.add_batch(status="validating")
    rows.run("UPDATE batches SET errors = '[]', expires_at = now() - interval '1 second'")
    with transaction(db) as session:
        assert batches.cancel_batch(session, rows.tenant, batch_id) is None
        assert endings.expire_batches(session) == []
