"""Log probabilities of answers, and what a reader should know of them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("answers", sa.Column("logprobs", postgresql.JSON(), nullable=True))
    op.add_column("answers", sa.Column("notes", postgresql.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("answers", "notes")
    op.drop_column("answers", "logprobs")
