"""Alembic's entry: online only, on the connection that `app.migrate` hands over."""

from alembic import context

from app.models import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, compare_server_default=False)
with context.begin_transaction():
    context.run_migrations()
