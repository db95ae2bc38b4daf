"""Alembic migrations of the vqueue schema; run them with `vqueue migrate`."""
