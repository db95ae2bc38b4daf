"""What all tables share: where they are gathered, and columns of two common kinds."""

from sqlalchemy import Column, DateTime, Integer, MetaData, text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

NOW = text("now()")
ZERO = text("0")
STANDARD = text("'standard'")


def moment(name: str, *, nullable: bool = True, now: bool = False) -> Column[object]:
    """A point in time with its zone."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=NOW if now else None)


def counter(name: str, kind: type[Integer] = Integer) -> Column[int]:
    return Column(name, kind, nullable=False, server_default=ZERO)
