"""The way to Postgres: engine, session factory, and the one transaction helper."""

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg2
from psycopg2 import extensions
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

Sessions = sessionmaker[Session]

# A transaction that waits longer than this for a row lock has met a fault, not a queue.
LOCK_TIMEOUT_MS = 10_000
# A transaction that says nothing for so long belongs to a process that is frozen. Its locks would hold up all
# others until it wakes: the kernel answers for it, so no keepalive ends it. Over what a broker may take.
IDLE_TRANSACTION_MS = 15_000
UNDEFINED_TABLE = "42P01"  # PostgreSQL's own code


def make_engine(
    database_url: str, *, pool_size: int, application: str, statement_timeout_ms: int = 0
) -> Engine:
    """An engine for one process. `application` names it in pg_stat_activity; 0 lets statements run."""
    url = make_url(database_url)
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg2")
    return create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=True,
        pool_timeout=30,
        hide_parameters=True,  # errors are logged, and parameters hold questions and answers
        connect_args={
            "application_name": f"vqueue-{application}",
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 15_000,  # ms without an acknowledgement from a host that fell off the net
            # To compile a statement takes longer than any of ours runs, and so do two processes for a page.
            "options": f"-c lock_timeout={LOCK_TIMEOUT_MS} -c timezone=UTC -c jit=off"
            " -c max_parallel_workers_per_gather=0"
            f" -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_MS}"
            f" -c statement_timeout={statement_timeout_ms}",
        },
    )


def give_up_waiting(after_s: float) -> None:
    """Let each wait of this process for an answer of Postgres end as an outage after `after_s`; 0: none does.

    The kernel of a frozen server answers for it, so that nothing else ends such a wait. COPY does not work
    beside it.
    """
    extensions.set_wait_callback(partial(_wait, after_s=after_s) if after_s else None)


def _wait(connection: Any, *, after_s: float) -> None:  # psycopg2's own, which has no types
    until = time.monotonic() + after_s
    while (state := connection.poll()) != extensions.POLL_OK:
        poller = select.poll()
        poller.register(
            connection.fileno(), select.POLLIN if state == extensions.POLL_READ else select.POLLOUT
        )
        if not poller.poll(max(0.0, until - time.monotonic()) * 1000):
            raise psycopg2.OperationalError("The server has not answered in time.")


def is_database_url(text: str) -> bool:
    """Whether it is the URL of a PostgreSQL database, reachable or not."""
    try:
        return make_url(text).get_backend_name() in ("postgresql", "postgres")
    except (ArgumentError, ValueError):
        return False


def make_sessions(engine: Engine) -> Sessions:
    return sessionmaker(engine, expire_on_commit=False)


@contextmanager
def transaction(sessions: Sessions) -> Iterator[Session]:
    """A session in one transaction: committed at the end, rolled back on any error."""
    with sessions.begin() as session:
        yield session


def is_outage(error: BaseException) -> bool:
    """Whether a database error means that the server is away, not that a statement is wrong.

    So does a pool that gave no connection in time: those that have one wait for the server.
    """
    return isinstance(error, OperationalError | PoolTimeout) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )


def lacks_tables(error: BaseException) -> bool:
    """Whether a database error means that the schema is not there yet."""
    return isinstance(error, ProgrammingError) and getattr(error.orig, "pgcode", None) == UNDEFINED_TABLE
