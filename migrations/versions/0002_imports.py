"""Keep where imported rollouts came from; rollouts that are stored already were not imported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to 0002."""
    op.create_table(
        "imports",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("run_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("nesting", sa.Text(), nullable=False),
        sa.Column("extras", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_imports_rollout_pk"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_imports_run_pk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rollout_pk", name=op.f("pk_imports")),
    )
    op.create_index(op.f("ix_imports_run_pk_digest"), "imports", ["run_pk", "digest"], unique=False)


def downgrade() -> None:
    """Go back to 0001."""
    op.drop_index(op.f("ix_imports_run_pk_digest"), table_name="imports")
    op.drop_table("imports")
