"""What the database and the object store must look like once every batch has ended."""

from contextlib import closing

from tests.chaos.books import ENDED, Books
from tests.chaos.customer import Customer, Ordered
from tests.chaos.inputs import Fate
from tests.servers import S3Place
from tests.waiting import eventually

ENDED_BATCH = ("completed", "failed", "cancelled", "expired")
AGAIN_S = 60.0
# How a batch stands before its files are written.
BEFORE = {Fate.COMPLETED: "finalizing", Fate.EXPIRED: "finalizing", Fate.CANCELLED: "cancelling"}
COUNTS = {
    "jobs have not ended": ("SELECT count(*) FROM jobs WHERE state <> ALL(%s)", list(ENDED)),
    "leases are left": ("SELECT count(*) FROM jobs WHERE lease_until IS NOT NULL",),
    "batches have not ended": ("SELECT count(*) FROM batches WHERE status <> ALL(%s)", list(ENDED_BATCH)),
    "batches do not add up": (
        """
        SELECT count(*) FROM batches b WHERE status <> 'failed' AND (total, completed) <> (
            SELECT count(*), count(*) FILTER (WHERE state = 'completed') FROM jobs WHERE batch_id = b.id)
        """,
    ),
    "completed jobs have no answer": (
        """
        SELECT count(*) FROM jobs WHERE state = 'completed'
            AND NOT EXISTS (SELECT FROM answers WHERE job_id = jobs.id)
        """,
    ),
    "answers are of jobs that did not complete": (
        "SELECT count(*) FROM answers JOIN jobs ON jobs.id = job_id WHERE state <> 'completed'",
    ),
    "jobs are not once in the journal of results": (
        """
        SELECT count(*) FROM (
            SELECT FROM jobs JOIN batches b ON b.id = jobs.batch_id AND b.status <> 'failed'
            LEFT JOIN (SELECT unnest(job_ids) AS id FROM results) AS told ON told.id = jobs.id
            GROUP BY jobs.id HAVING count(told.id) <> 1) AS wrong
        """,
    ),
    "waits are left": (
        "SELECT count(*) FROM job_waits JOIN jobs ON jobs.id = job_id WHERE state <> ALL(%s)",
        list(ENDED),
    ),
}


def leftovers(books: Books) -> list[str]:
    """What is wrong, in words; nothing where all is well."""
    found = [(books.one(*question), told) for told, question in COUNTS.items()]
    return [f"{count} {told}" for count, told in found if count]


def write_again(books: Books, customer: Customer, place: S3Place) -> list[str]:
    """Have the files of one batch of each fate written anew; where they are not the same bytes, say so.

    The first ones are deleted before: what is read afterwards was written a second time.
    """
    problems: list[str] = []
    for fate, status in BEFORE.items():
        order = next(order for order in customer.orders if order.given.fate is fate)
        _forget(books, place, order, status)
        eventually(lambda order=order: _ended(books, order), within_s=AGAIN_S)
        if customer.fetch(order) != order.files:
            problems.append(
                f"{order.given.name}: its files are not the same bytes when they are written again"
            )
    return problems


def _forget(books: Books, place: S3Place, order: Ordered, status: str) -> None:
    keys = books.rows(
        "SELECT object_key FROM files WHERE id IN (SELECT unnest(ARRAY[output_file_id, error_file_id])"
        " FROM batches WHERE id = %s)",
        order.id,
    )
    with closing(place.store()) as store:
        for (key,) in keys:
            store.delete(key)
    books.rows("UPDATE batches SET status = %s, lease_until = NULL WHERE id = %s", status, order.id)


def _ended(books: Books, order: Ordered) -> bool:
    return books.one("SELECT status FROM batches WHERE id = %s", order.id) in ENDED_BATCH
