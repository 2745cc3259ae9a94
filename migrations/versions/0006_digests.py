"""Keep digests of what rows say. Rows that are stored already have none: a digest made now would only vouch for now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SMALL = ("runs", "sessions", "weight_versions", "checkpoints", "adoptions", "pins")


def upgrade() -> None:
    """Go to 0006."""
    op.create_table(
        "rollout_digests",
        sa.Column("rollout_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("digests", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_rollout_digests_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "subject", name=op.f("pk_rollout_digests")),
    )
    for table in _SMALL:
        op.add_column(table, sa.Column("row_digest", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Go back to 0005."""
    for table in reversed(_SMALL):
        op.drop_column(table, "row_digest")
    op.drop_table("rollout_digests")
