"""Statements that Postgres plans once and keeps: those that run again and again on a few rows each."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CursorResult, text
from sqlalchemy.orm import Session

# A plan that was made while a table was small must not be kept until it is large.
KEPT_S = 10.0

_PARAMETER = re.compile(r"(?<!:):(\w+)")


@dataclass(frozen=True)
class Prepared:
    """A statement whose `sql` names its parameters as `:name`; `types` has Postgres' type of each.

    Reading and planning a claim or a record of 32 jobs took Postgres as long as the rest of it.
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
        given = ", ".join(f"CAST(:{name} AS {kind})" for name, kind in self.types.items())
        return connection.execute(text(f"EXECUTE {self.name} ({given})"), values)

    def _prepare(self) -> str:
        places = {name: f"${number}" for number, name in enumerate(self.types, start=1)}
        body = _PARAMETER.sub(lambda found: places[found[1]], self.sql)
        return f"PREPARE {self.name} ({', '.join(self.types.values())}) AS {body}"
