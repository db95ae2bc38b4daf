"""Whether what the API stands on is there: database at the newest schema, object store, broker, workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.db import Sessions, make_sessions, transaction
from app.migrate import current_revision, newest_revision, serves
from app.objects import ObjectStore
from app.queue import broker_answers
from app.store import workers

# What a check says when nothing is wrong.
OK = "ok"


@dataclass(frozen=True)
class Check:
    """One thing that we stand on. `run` may block, and says OK or what is wrong."""

    name: str
    run: Callable[[], str]
    needed: bool = True


def readiness_checks(
    *, engine: Engine, objects: ObjectStore, broker_url: str, models: Sequence[str], live_s: float
) -> tuple[Check, ...]:
    """`models` are those that are served; a worker not heard of for `live_s` seconds counts as gone."""
    sessions = make_sessions(engine)
    return (
        Check("database", lambda: _database(engine)),
        Check("object_store", lambda: OK if objects.reachable() else "does not answer"),
        # Without the broker nothing is lost and everything is still accepted: jobs wait in Postgres.
        Check("broker", lambda: OK if broker_answers(broker_url) else "does not answer", needed=False),
        Check("workers", lambda: _workers(sessions, models, live_s), needed=False),
    )


def _database(engine: Engine) -> str:
    try:
        found = current_revision(engine)
    except SQLAlchemyError:
        return "does not answer"
    # A newer one is what an upgrade begins with, while processes of the version before still serve.
    return OK if serves(found) else f"its schema is at {found or 'nothing'}, not at {newest_revision()}"


def _workers(sessions: Sessions, models: Sequence[str], live_s: float) -> str:
    try:
        with transaction(sessions) as session:
            live = workers.count_live(session, within_s=live_s)
    except SQLAlchemyError:
        return "not known: the database does not answer"
    unserved = [model for model in models if model not in live]
    return f"no live worker serves {', '.join(unserved)}" if unserved else OK
