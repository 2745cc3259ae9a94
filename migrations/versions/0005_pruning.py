"""Mark rollouts whose arrays were pruned, and keep which rollouts are pinned. What is stored is not pruned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to 0005."""
    op.add_column("rollouts", sa.Column("pruned_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("rollouts", sa.Column("pruned_by", sa.Text(), nullable=True))
    op.create_table(
        "pins",
        sa.Column("run_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("rollout_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("pinned_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_pins_run_pk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_pk", "kind", "rollout_id", name=op.f("pk_pins")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Go back to 0004."""
    op.drop_table("pins")
    op.drop_column("rollouts", "pruned_by")
    op.drop_column("rollouts", "pruned_at")
