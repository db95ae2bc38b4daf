"""Statements that Postgres plans once and keeps: those that run again and again on a few rows each."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from sqlalchemy import CursorResult
from sqlalchemy.orm import Session

from app.store.arrays import array

# A plan that was made while a table was small must not be kept until it is large.
KEPT_S = 10.0

_PARAMETER = re.compile(r"(?<!:):(\w+)")


@dataclass(frozen=True)
class Prepared:
    """A statement whose `sql` names its parameters as `:name`; `types` has Postgres' type of each.

    Reading and planning a claim or a record of 32 jobs took Postgres as long as the rest of it. Values of
    array types may be any iterables.
    """

    name: str
    sql: str
    types: Mapping[str, str]

    def execute(self, session: Session, values: Mapping[str, object]) -> CursorResult[Any]:
        connection = session.connection()
        kept: dict[str, float] = connection.info.setdefault("prepared", {})  # goes with the connection
        now = time.monotonic()
        if now >= kept.get(self.name, now):
            try:
                drop = f"DEALLOCATE {self.name}; " if self.name in kept else ""
                connection.exec_driver_sql(drop + self._prepare())
            except Exception:
                # Nobody knows whether it still has the old plan, and either guess would fail from now on.
                connection.invalidate()
                raise
            kept[self.name] = now + KEPT_S
        return connection.exec_driver_sql(self._execute, self._given(values))

    @cached_property
    def _execute(self) -> str:
        given = ", ".join(f"CAST(%({name})s AS {kind})" for name, kind in self.types.items())
        return f"EXECUTE {self.name} ({given})"

    def _given(self, values: Mapping[str, object]) -> dict[str, object]:
        return {
            name: array(cast(Iterable[object], values[name])) if kind.endswith("[]") else values[name]
            for name, kind in self.types.items()
        }

    def _prepare(self) -> str:
        places = {name: f"${number}" for number, name in enumerate(self.types, start=1)}
        body = _PARAMETER.sub(lambda found: places[found[1]], self.sql)
        return f"PREPARE {self.name} ({', '.join(self.types.values())}) AS {body}"
