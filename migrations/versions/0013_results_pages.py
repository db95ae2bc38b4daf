"""What the console's pages of results find their rows by."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UNANSWERED = "state IN ('failed', 'cancelled', 'expired')"
ENDED = "state IN ('completed', 'failed', 'cancelled', 'expired')"


def upgrade() -> None:
    op.create_index("ix_labels_value", "labels", ["batch_id", "field", "value", "job_id"])
    # Each has a job once at most: when it has ended as these say.
    op.create_index(
        "ix_jobs_unanswered",
        "jobs",
        ["batch_id", "line", "error_code"],
        postgresql_where=sa.text(f"{UNANSWERED} AND batch_id IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_image", "jobs", ["image_group"], postgresql_where=sa.text(f"{ENDED} AND image_group <> 0")
    )
    op.create_index(
        "ix_jobs_images",
        "jobs",
        ["image_ids"],
        postgresql_using="gin",
        postgresql_where=sa.text(f"{ENDED} AND cardinality(image_ids) > 1"),
    )
    op.create_index(
        "ix_answers_confidence",
        "answers",
        ["job_id", "confidence"],
        postgresql_where=sa.text("confidence IS NOT NULL"),
    )


def downgrade() -> None:
    for name, table in (
        ("ix_answers_confidence", "answers"),
        ("ix_jobs_images", "jobs"),
        ("ix_jobs_image", "jobs"),
        ("ix_jobs_unanswered", "jobs"),
        ("ix_labels_value", "labels"),
    ):
        op.drop_index(name, table)
