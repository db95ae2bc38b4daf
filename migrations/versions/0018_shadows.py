"""Shadows: which share of an ended batch was asked of another model, and how the answers compare."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

ZERO = sa.text("0")


def upgrade() -> None:
    op.create_table(
        "shadows",
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("other", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("share", sa.Float, nullable=False),
        sa.Column("shadow_batch_id", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.Column("compared_at", sa.DateTime(timezone=True)),
        *(
            sa.Column(name, sa.Integer, nullable=False, server_default=ZERO)
            for name in ("pairs", "exact", "alike", "timed")
        ),
        *(sa.Column(name, sa.Float, nullable=False, server_default=ZERO) for name in ("model_s", "other_s")),
        sa.PrimaryKeyConstraint("batch_id", "other", name="pk_shadows"),
        sa.UniqueConstraint("shadow_batch_id", name="uq_shadows_shadow_batch_id"),
    )
    op.create_index("ix_shadows_created_at", "shadows", ["created_at"])


def downgrade() -> None:
    op.drop_table("shadows")
