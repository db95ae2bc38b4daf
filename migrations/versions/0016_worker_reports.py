"""What a worker tells of its engine with its heartbeat; null of one that tells nothing yet."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("report", JSONB))


def downgrade() -> None:
    op.drop_column("workers", "report")
