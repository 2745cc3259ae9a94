"""Where imported rollouts came from."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class ImportRow(Base):
    """The file that a rollout was imported from; a file whose content is here is not imported again."""

    __tablename__ = "imports"
    __table_args__ = (Index(None, "run_pk", "digest"),)

    rollout_pk: Mapped[int] = mapped_column(
        BigKey,
        ForeignKey("rollouts.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        doc="the imported rollout",
    )
    run_pk: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), doc="the run it was imported into")
    digest: Mapped[bytes] = mapped_column(doc="SHA-256 of the file")
    file_name: Mapped[str] = mapped_column(Text, doc="without its directory")
    imported_at: Mapped[datetime] = mapped_column(doc="when")
    nesting: Mapped[str] = mapped_column(Text, doc='"inferred" from group_index, or "given": the file had the lists')
    extras: Mapped[str] = mapped_column(
        Text, doc="document: top-level entries of the file that are no samples or metrics"
    )
