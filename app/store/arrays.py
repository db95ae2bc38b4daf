"""Arrays as Postgres reads them: one constant each."""

from collections.abc import Iterable


def array(values: Iterable[object]) -> str:
    """A parameter for `CAST(:name AS type[])`: numbers, texts, bytes, truth values and None.

    What psycopg2 makes of a list, ARRAY[...] with an expression for each element, cost more to write and to
    parse than many a statement with such parameters to run.
    """
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case _:
            return str(value)
