"""Whether what the API stands on is there: database at the newest schema, object store, broker."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.migrate import current_revision, newest_revision
from app.objects import ObjectStore
from app.queue import broker_answers

# What a check says when nothing is wrong.
OK = "ok"


@dataclass(frozen=True)
class Check:
    """One thing that we stand on. `run` may block, and says OK or what is wrong."""

    name: str
    run: Callable[[], str]
    needed: bool = True


def readiness_checks(*, engine: Engine, objects: ObjectStore, broker_url: str) -> tuple[Check, ...]:
    newest = newest_revision()
    return (
        Check("database", lambda: _database(engine, newest)),
        Check("object_store", lambda: OK if objects.reachable() else "does not answer"),
        # Without the broker nothing is lost and everything is still accepted: jobs wait in Postgres.
        Check("broker", lambda: OK if broker_answers(broker_url) else "does not answer", needed=False),
    )


def _database(engine: Engine, newest: str | None) -> str:
    try:
        found = current_revision(engine)
    except SQLAlchemyError:
        return "does not answer"
    return OK if found == newest else f"its schema is at {found or 'nothing'}, not at {newest}"
