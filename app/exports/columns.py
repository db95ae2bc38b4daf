"""The columns of an export and what their cells may hold. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.checks import Json

# Anything that JSON has; what a column's kind does not allow is none of its values.
Cells = Sequence[Json]

INT64 = 2**63


class Kind(StrEnum):
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"  # anything; text where a format has no such thing


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind = Kind.TEXT


def fits(kind: Kind, value: Json) -> bool:
    """Whether a column of this kind can hold the value."""
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool) and -INT64 <= value < INT64
        case Kind.NUMBER:
            return isinstance(value, float) or fits(Kind.INTEGER, value)
        case Kind.JSON:
            return True


def with_own_names(columns: Iterable[Column]) -> list[Column]:
    """The same columns, each name once: the second `colour` is `colour_2`."""
    taken, named = set[str](), list[Column]()
    for column in columns:
        name, count = column.name, 1
        while name in taken:
            count += 1
            name = f"{column.name}_{count}"
        taken.add(name)
        named.append(Column(name, column.kind))
    return named
