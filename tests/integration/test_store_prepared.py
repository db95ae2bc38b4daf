"""Statements whose plans Postgres keeps: once per connection, again on a new one and after a while."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from app.db import make_sessions, transaction
from app.store import prepared
from app.store.prepared import Prepared

DOUBLE = Prepared(
    "double",
    "SELECT CAST(2 * :n AS text) || :unit || cardinality(:ids)::text",
    {"n": "int", "unit": "text", "ids": "int[]"},
)


def double(session: Session, n: int, statement: Prepared = DOUBLE) -> str:
    return statement.execute(session, {"n": n, "unit": "m", "ids": []}).scalar_one()


def prepared_at(session: Session, name: str = "double") -> object:
    return session.execute(
        text("SELECT prepare_time FROM pg_prepared_statements WHERE name = :name"), {"name": name}
    ).scalar_one()


def test_parameters_of_all_types_arrive(database: Engine) -> None:
    with transaction(make_sessions(database)) as session:
        assert double(session, 21) == "42m0"


def test_a_statement_is_prepared_once_for_a_connection(database: Engine) -> None:
    with database.connect() as connection, Session(connection) as session:
        double(session, 1)
        first = prepared_at(session)
        double(session, 2)
        assert prepared_at(session) == first


def test_a_rollback_takes_nothing_away(database: Engine) -> None:
    with database.connect() as connection, Session(connection) as session:
        double(session, 1)
        session.rollback()
        assert double(session, 2) == "4m0"


def test_a_new_connection_prepares_anew(database: Engine) -> None:
    with database.connect() as connection, Session(connection) as session:
        double(session, 1)
        connection.invalidate()
        session.rollback()
        assert double(session, 2) == "4m0"


def test_a_plan_that_could_not_be_renewed_is_made_anew(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "KEPT_S", 0.0)
    fragile = replace(DOUBLE, name="fragile")
    with database.connect() as connection, Session(connection) as session:
        double(session, 1, fragile)
        with pytest.raises(ProgrammingError):
            double(session, 1, replace(fragile, sql="SELECT :n, :unit, :ids FROM nowhere"))
        session.rollback()
        assert double(session, 2, fragile) == "4m0"


def test_a_plan_is_not_kept_for_long(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "KEPT_S", 0.0)
    hasty = replace(DOUBLE, name="hasty")
    with database.connect() as connection, Session(connection) as session:
        double(session, 1, hasty)
        first = prepared_at(session, "hasty")
        session.commit()
        assert double(session, 2, hasty) == "4m0"
        assert prepared_at(session, "hasty") != first
