"""Cells of the columns that questions of sweeps name, beside each item."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sweep_items", sa.Column("cells", JSONB, nullable=False, server_default=sa.text("'{}'")))


def downgrade() -> None:
    op.drop_column("sweep_items", "cells")
