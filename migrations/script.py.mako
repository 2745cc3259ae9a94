"""${message if down_revision else "The first schema"}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
<%
    def plain(commands):
        return "\n".join(line for line in (commands or "pass").splitlines() if "# ###" not in line).strip()
%>

def upgrade() -> None:
    """Go to ${up_revision}."""
    ${plain(upgrades)}


def downgrade() -> None:
    """Go back to ${down_revision if down_revision else "an empty database"}."""
    ${plain(downgrades)}
