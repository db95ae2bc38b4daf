"""Arrays reach Postgres as they are, whatever stands in them."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from app.db import Sessions, transaction
from app.store.arrays import array

# NUL and lone surrogates are in no text of Postgres.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))
ODD = ["", "NULL", "null", "a,b", '"', "\\", "{}", " ", "'", "%(name)s", ":name", "\\x41", "\n"]


def back(db: Sessions, values: list[Any], kind: str) -> list[Any]:
    with transaction(db) as session:
        found = session.execute(text(f"SELECT CAST(:given AS {kind}[])"), {"given": array(values)})
        return found.scalar_one()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [1, -(2**63), 2**63 - 1, None]),
        ("float8", [0.1, -1e-300, 1e300, float("inf"), None]),
        ("boolean", [True, False, None]),
        ("text", [*ODD, None]),
        ("text", []),
    ],
)
def test_values_of_all_kinds_come_back(db: Sessions, kind: str, values: list[Any]) -> None:
    assert back(db, values, kind) == values


def test_bytes_come_back(db: Sessions) -> None:
    values = [bytes(range(256)), b"", b"\\", None]
    found = [None if one is None else bytes(one) for one in back(db, values, "bytea")]
    assert found == values


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(TEXTS | st.none()))
def test_any_texts_come_back(db: Sessions, values: list[str | None]) -> None:
    assert back(db, values, "text") == values
