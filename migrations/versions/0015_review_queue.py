"""A queue of answers to review: how sure each was, who looks at it now, and what each person has said."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

NOW = sa.text("now()")


def upgrade() -> None:
    op.add_column("labels", sa.Column("confidence", sa.Float))
    op.execute(
        """
        UPDATE labels SET confidence = a.confidence FROM answers a
        WHERE a.job_id = labels.job_id AND a.confidence IS NOT NULL
        """
    )
    op.create_index(
        "ix_labels_confidence",
        "labels",
        ["tenant_id", "confidence", "job_id", "field"],
        postgresql_where=sa.text("confidence IS NOT NULL"),
    )
    op.create_table(
        "review_votes",
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("field", sa.Text(collation="C"), nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("label", JSON),
        sa.Column("note", sa.Text),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("job_id", "field", "key_id", name="pk_review_votes"),
    )
    op.create_index(
        "ix_review_votes_tenant_id_job_id_field", "review_votes", ["tenant_id", "job_id", "field"]
    )
    op.execute(
        """
        INSERT INTO review_votes (job_id, field, key_id, tenant_id, verdict, label, note, at)
        SELECT job_id, field, key_id, tenant_id, verdict, label, note, at FROM reviews
        WHERE key_id IS NOT NULL
        """
    )
    op.create_table(
        "review_claims",
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("field", sa.Text(collation="C"), nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "field", name="pk_review_claims"),
    )


def downgrade() -> None:
    op.drop_table("review_claims")
    op.drop_table("review_votes")
    op.drop_index("ix_labels_confidence", table_name="labels")
    op.drop_column("labels", "confidence")
