"""Labels of answers, reviews of them, and views of both for other programs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
REVIEW = "CASE r.verdict WHEN 'confirm' THEN 'confirmed' WHEN 'overturn' THEN 'overturned' ELSE 'none' END"
RIGHT = "CASE WHEN r.verdict = 'overturn' THEN coalesce(r.label #>> '{}', 'null') ELSE l.value END"
FROM = """
    FROM labels l JOIN tenants t ON t.id = l.tenant_id
    LEFT JOIN reviews r ON r.job_id = l.job_id AND r.field = l.field"""
# Of a batch that its owner has deleted nothing is seen, though its rows may still be there.
SEEN = "NOT EXISTS (SELECT FROM batches d WHERE d.id = l.batch_id AND d.deleted_at IS NOT NULL)"


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("field", sa.Text(collation="C"), nullable=False),
        sa.Column("place", sa.SmallInteger, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("batch_id", sa.Text),
        sa.Column("question", sa.Text),
        sa.Column("item", sa.Text),
        sa.Column("policy_version", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("job_id", "field", "place", name="pk_labels"),
    )
    order = ["created_at", "job_id", "field", "place"]
    op.create_index("ix_labels_newest", "labels", ["tenant_id", *order])
    op.create_index("ix_labels_question", "labels", ["tenant_id", "question", "value", "created_at"])
    op.create_index("ix_labels_batch", "labels", ["batch_id", *order])
    op.create_index("ix_labels_item", "labels", ["tenant_id", "item"])
    op.create_table(
        "reviews",
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("field", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("label", JSON),
        sa.Column("note", sa.Text),
        sa.Column("key_id", sa.Text),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("job_id", "field", name="pk_reviews"),
    )
    op.create_index("ix_reviews_tenant_id_job_id_field", "reviews", ["tenant_id", "job_id", "field"])
    _create_views()


def downgrade() -> None:
    op.execute("DROP VIEW vqueue_labels_daily")
    op.execute("DROP VIEW vqueue_answers")
    op.drop_table("reviews")
    op.drop_table("labels")


def _create_views() -> None:
    """Their columns are a promise: docs/labels.md lists them."""
    op.execute(
        f"""
        CREATE VIEW vqueue_answers AS
        SELECT t.name AS tenant, 'job_' || lpad(to_hex(l.job_id), 16, '0') AS job_id, l.batch_id, l.item,
               l.question, l.field, l.place, l.value AS label, {RIGHT} AS reviewed_label, {REVIEW} AS review,
               r.note AS review_note, r.at AS reviewed_at, l.policy_version, l.model, a.revision,
               l.created_at AS answered_at, a.text
        {FROM} JOIN answers a ON a.job_id = l.job_id
        WHERE {SEEN}
        """
    )
    op.execute(
        f"""
        CREATE VIEW vqueue_labels_daily AS
        SELECT t.name AS tenant, (l.created_at AT TIME ZONE 'UTC')::date AS day, l.question, l.field,
               l.value AS label, l.policy_version, l.model, count(*) AS answers,
               count(*) FILTER (WHERE r.verdict = 'confirm') AS confirmed,
               count(*) FILTER (WHERE r.verdict = 'overturn') AS overturned
        {FROM}
        WHERE {SEEN}
        GROUP BY 1, 2, 3, 4, 5, 6, 7
        """
    )
