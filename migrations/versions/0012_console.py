"""The console: its sessions, and the secret that signs links to pictures."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

NOW = sa.text("now()")


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("token_hash", sa.LargeBinary(), primary_key=True),
        sa.Column("key_id", sa.Text(), sa.ForeignKey("api_keys.id"), nullable=False),
        sa.Column("csrf", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_console_sessions_expires_at", "console_sessions", ["expires_at"])
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("secrets")
    op.drop_table("console_sessions")
