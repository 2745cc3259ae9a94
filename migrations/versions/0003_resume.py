"""What resuming needs: checkpoints, adopted rollouts, and where a session started. Earlier sessions keep NULL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to 0003."""
    op.add_column("sessions", sa.Column("checkpoint_rollout_id", sa.BigInteger(), nullable=True))
    op.add_column("sessions", sa.Column("lineage", sa.Text(), nullable=True))
    op.create_table(
        "checkpoints",
        sa.Column("session_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("rollout_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_pk"], ["sessions.id"], name=op.f("fk_checkpoints_session_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_pk", "rollout_id", name=op.f("pk_checkpoints")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "adoptions",
        sa.Column("session_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("rollout_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("adopted_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_pk"], ["sessions.id"], name=op.f("fk_adoptions_session_pk"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_adoptions_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_pk", "rollout_pk", name=op.f("pk_adoptions")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_adoptions_rollout_pk"), "adoptions", ["rollout_pk"], unique=False)


def downgrade() -> None:
    """Go back to 0002."""
    op.drop_table("adoptions")
    op.drop_table("checkpoints")
    op.drop_column("sessions", "lineage")
    op.drop_column("sessions", "checkpoint_rollout_id")
