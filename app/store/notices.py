"""Notices through Postgres: a transaction tells at its commit that there is work, and sleepers wake up."""

import select
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

JOBS = "vqueue_jobs"  # an interactive job is ready
IMAGES = "vqueue_images"  # an interactive job waits for an image


def notify(session: Session, channel: str) -> None:
    """Wake whoever listens, once the caller commits.

    For interactive work only: Postgres takes commits with notices one after the other.
    """
    session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": channel})


class Listener:
    """Listens on a connection of its own, beside the pool. A pooler between may eat notices unseen."""

    def __init__(self, engine: Engine, channel: str) -> None:
        self._engine = engine
        self._channel = channel
        self._connection: Any = None  # psycopg2's own, which has the notices

    def wait(self, within_s: float) -> bool:
        """Whether somebody has notified, or may have while there was no connection."""
        if self._connection is None:
            self._connect()
            return True
        try:
            if not select.select([self._connection], [], [], within_s)[0]:
                return False
            self._connection.poll()
            self._connection.notifies.clear()
            return True
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it is broken or going anyway
                connection.close()

    def _connect(self) -> None:
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()
        connection.autocommit = True
        connection.cursor().execute(f"LISTEN {self._channel}")
        self._connection = connection
