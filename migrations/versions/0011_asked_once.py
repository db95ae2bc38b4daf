"""Jobs between the two models of a cascade are found by what they ask, as those are that are being asked."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

NAME = "ix_jobs_answer_key"


def upgrade() -> None:
    _index("state IN ('queued', 'running', 'ready')")


def downgrade() -> None:
    _index("state IN ('queued', 'running')")
    # Without their bits above, jobs have never waited for nothing.
    op.execute("UPDATE jobs SET cache = cache & 63 WHERE cache > 63")


def _index(states: str) -> None:
    op.drop_index(NAME, table_name="jobs")
    op.create_index(
        NAME, "jobs", ["answer_key"], postgresql_where=sa.text(f"answer_key IS NOT NULL AND {states}")
    )
