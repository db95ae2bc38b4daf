"""The trace that follows a batch or a job, where one does: null of nearly all."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("trace", sa.Text))
    op.add_column("jobs", sa.Column("trace", sa.Text))


def downgrade() -> None:
    op.drop_column("jobs", "trace")
    op.drop_column("batches", "trace")
