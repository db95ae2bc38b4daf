"""Cascades: batches that ask a small model first."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON

revision = "0009"
down_revision = "0007"
branch_labels = None
depends_on = None

ZERO = sa.text("0")


def upgrade() -> None:
    op.add_column("batches", sa.Column("cascade", JSON()))
    for name in ("escalated", "escalated_answered", "agreed"):
        op.add_column("batches", sa.Column(name, sa.Integer(), nullable=False, server_default=ZERO))
    op.add_column("batches", sa.Column("first_model_s", sa.Float(), nullable=False, server_default=ZERO))
    op.add_column("jobs", sa.Column("final_model", sa.Text()))
    op.add_column("jobs", sa.Column("first_answer", JSON()))
    op.add_column("answers", sa.Column("confidence", sa.Float()))
    op.add_column("answer_cache", sa.Column("confidence", sa.Float()))


def downgrade() -> None:
    for table, columns in (
        ("answer_cache", ("confidence",)),
        ("answers", ("confidence",)),
        ("jobs", ("first_answer", "final_model")),
        ("batches", ("first_model_s", "agreed", "escalated_answered", "escalated", "cascade")),
    ):
        for column in columns:
            op.drop_column(table, column)
