"""Tables of other databases that the operator lets sweeps read: one SELECT, by a cursor of the server."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Engine, column, create_engine, make_url, select, table
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from app.errors import InvalidWork, TransientWork

PAGE_ROWS = 1_000
AWAY, REFUSED = "The source's database does not answer", "The source's database refused"


def read_rows(url: str, name: str, columns: Sequence[str]) -> Iterator[Sequence[Sequence[object]]]:
    """Pages of a table's (or view's) rows, with these columns; `name` may have a schema before a dot.

    Reads only, in a transaction that is rolled back. Raises InvalidWork `source_refused` where the database
    refuses it, TransientWork `source_unavailable` where none answers.
    """
    schema, _, last = name.rpartition(".")
    rows = table(last, *map(column, dict.fromkeys(columns)), schema=schema or None)
    # With the table's name before them: SQLite takes a quoted name that is no column for a text.
    wanted = select(*(rows.c[one].label(f"c{at}") for at, one in enumerate(columns)))
    engine = _engine(url)
    options: dict[str, object] = {"stream_results": True, "yield_per": PAGE_ROWS}
    if engine.dialect.name == "postgresql":
        options["postgresql_readonly"] = True
    try:
        with _connected(engine).execution_options(**options) as connection:
            for page in connection.execute(wanted).partitions():
                yield [tuple(row) for row in page]
    except DBAPIError as error:
        if error.connection_invalidated:
            raise TransientWork("source_unavailable", f"{AWAY}: {_why(error)}") from error
        raise InvalidWork("source_refused", f"{REFUSED}: {_why(error)}") from error
    except SQLAlchemyError as error:
        raise InvalidWork("source_refused", f"{REFUSED}: {error}") from error
    finally:
        engine.dispose()


def _engine(url: str) -> Engine:
    try:
        given = make_url(url)
        if given.drivername in ("postgresql", "postgres"):
            given = given.set(drivername="postgresql+psycopg2")
        return create_engine(given, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise InvalidWork("source_refused", f"The source's database cannot be used: {error}") from error


def _connected(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except DBAPIError as error:
        raise TransientWork("source_unavailable", f"{AWAY}: {_why(error)}") from error


def _why(error: DBAPIError) -> str:
    """The driver's first line: it holds no password."""
    return str(error.orig).strip().partition("\n")[0]
