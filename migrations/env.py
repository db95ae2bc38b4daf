"""Alembic's entry: online only, on the connection that `app.migrate` hands over."""

from alembic import context

from app.models import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    compare_server_default=False,
    # Locks of one migration are let go before the next; and one may create an index concurrently.
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
