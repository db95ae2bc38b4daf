"""How images look: what near duplicates are found by, and batches that are answered by them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
SEEN = sa.text("phash IS NOT NULL")


def upgrade() -> None:
    op.add_column("batches", sa.Column("near_distance", sa.SmallInteger()))
    op.add_column(
        "batches", sa.Column("near_answers", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
    op.create_table(
        "image_looks",
        sa.Column("tenant_id", sa.Text(), primary_key=True),
        sa.Column("content_hash", sa.Text(), primary_key=True),
        sa.Column("phash", sa.BigInteger()),
        *(sa.Column(f"band{number}", sa.Integer()) for number in range(4)),
        sa.Column("colours", sa.LargeBinary()),
        sa.Column("leader", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("attempt", sa.SmallInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("wanted_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("seen_at", sa.DateTime(timezone=True)),
    )
    for number in range(4):
        op.create_index(
            f"ix_image_looks_band{number}",
            "image_looks",
            ["tenant_id", f"band{number}"],
            postgresql_where=SEEN,
        )
    op.create_index("ix_image_looks_leader", "image_looks", ["tenant_id", "leader"], postgresql_where=SEEN)
    op.create_index(
        "ix_image_looks_due", "image_looks", ["due_at"], postgresql_where=sa.text("seen_at IS NULL")
    )
    op.create_index(
        "ix_image_looks_seen_at", "image_looks", ["seen_at"], postgresql_where=sa.text("seen_at IS NOT NULL")
    )


def downgrade() -> None:
    op.drop_table("image_looks")
    # Without their bits a batch's jobs use the answer cache as any others do.
    op.execute("UPDATE jobs SET cache = cache & 3 WHERE cache > 3")
    for column in ("near_answers", "near_distance"):
        op.drop_column("batches", column)
