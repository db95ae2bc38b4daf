"""Lists that are read page by page, in order of creation, from behind the last row of the page before."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Result, text
from sqlalchemy.orm import Session


class Placed(Protocol):
    """A row with its place in the order."""

    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


def read_page(
    session: Session,
    query: str,
    values: Mapping[str, object],
    *,
    limit: int,
    after: Placed | None,
    newest_first: bool = True,
    of: str = "",
) -> Result[Any]:
    """The next rows of a query that ends within its WHERE; `of` is the table's alias, with its dot."""
    beyond, order = ("<", "DESC") if newest_first else (">", "ASC")
    return session.execute(
        text(
            f"""
            {query}
              AND (CAST(:after_id AS text) IS NULL
                   OR ({of}created_at, {of}id) {beyond} (CAST(:after_at AS timestamptz), :after_id))
            ORDER BY {of}created_at {order}, {of}id {order} LIMIT :limit
            """
        ),
        {
            **values,
            "after_id": after.id if after else None,
            "after_at": after.created_at if after else None,
            "limit": limit,
        },
    )
