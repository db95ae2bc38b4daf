"""What the database says while it is struck itself: reads only, and `Away` where it does not answer."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg2

ENDED = ("completed", "failed", "cancelled", "expired")
MOMENTS = {
    "sent": "SELECT EXISTS (SELECT FROM jobs WHERE sent_at > to_timestamp(%s))",
    "claimed": "SELECT EXISTS (SELECT FROM jobs WHERE started_at > to_timestamp(%s))",
    "stored": "SELECT EXISTS (SELECT FROM images WHERE stored_at > to_timestamp(%s))",
}


class Away(Exception):
    """The database does not answer."""


class Books:
    """One connection, opened anew after a fault."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg2.Error):
                connection.close()

    def held_by(self, worker: str) -> dict[int, int]:
        """The jobs that a worker holds under leases that run, each with its attempt."""
        rows = self.rows(
            "SELECT id, attempt FROM jobs WHERE worker = %s AND state = 'running' AND lease_until > now()",
            worker,
        )
        return dict(rows)

    def leases(self) -> int:
        return self.one("SELECT count(*) FROM jobs WHERE state = 'running' AND lease_until > now()")

    def fetches(self) -> int:
        return self.one("SELECT count(*) FROM images WHERE state = 'fetching' AND due_at > now()")

    def left_of(self, held: Mapping[int, int]) -> int:
        """How many of these attempts have neither ended nor been followed by another one."""
        return self.one(
            """
            SELECT count(*) FROM jobs JOIN unnest(%s::bigint[], %s::int[]) AS held(id, attempt) USING (id)
            WHERE jobs.attempt = held.attempt AND jobs.state <> ALL(%s)
            """,
            list(held),
            list(held.values()),
            list(ENDED),
        )

    def happened(self, what: str, since: float) -> bool:
        """Whether something of MOMENTS has happened since that Unix time."""
        return self.one(MOMENTS[what], since)

    def some_jobs(self, states: Sequence[str], limit: int) -> list[int]:
        """The latest jobs in one of these states."""
        rows = self.rows(
            "SELECT id FROM jobs WHERE state = ANY(%s) ORDER BY sent_at DESC NULLS LAST LIMIT %s",
            list(states),
            limit,
        )
        return [row[0] for row in rows]

    def one(self, statement: str, *values: object) -> Any:
        return self.rows(statement, *values)[0][0]

    def rows(self, statement: str, *values: object) -> list[Any]:
        try:
            with self._open().cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchall() if cursor.description else []
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            self.close()
            raise Away from error

    def _open(self) -> Any:
        if self._connection is None:
            options = "-c statement_timeout=5000"
            self._connection = psycopg2.connect(self._url, connect_timeout=3, options=options)
            self._connection.autocommit = True
        return self._connection
