"""Finds the columns that a client names among those that a table has. Pure."""

from collections.abc import Collection, Sequence

from app.checks import shown
from app.tables.base import refused

MOST_SHOWN = 20


def find_column(name: str, columns: Sequence[str], *, param: str) -> int:
    """Where the column is; case and the spaces around a name do not matter unless they tell two apart.

    Raises InputError, naming what there is.
    """
    exact = [at for at, column in enumerate(columns) if column == name]
    found = exact or [at for at, column in enumerate(columns) if plain(column) == plain(name)]
    if len(found) == 1:
        return found[0]
    if found:
        message = (
            f"The table has {len(found)} columns named {shown(name)}: a duplicate header. Rename all but one."
        )
        raise refused("duplicate_column", message, param=param)
    there = ", ".join(shown(column) for column in columns[:MOST_SHOWN])
    more = f" and {len(columns) - MOST_SHOWN} more" if len(columns) > MOST_SHOWN else ""
    raise refused(
        "missing_column",
        f"The table has no column {shown(name)}. Its header, the first row, has {there}{more}.",
        param=param,
    )


def count_found(names: Collection[str], columns: Sequence[str]) -> int:
    there = {plain(column) for column in columns}
    return sum(plain(name) in there for name in names)


def plain(name: str) -> str:
    return name.strip().casefold()
