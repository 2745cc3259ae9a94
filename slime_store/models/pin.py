"""Rollouts that pruning leaves alone."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class PinRow(Base):
    """A rollout to keep, by its number: every attempt of it, also later ones."""

    __tablename__ = "pins"
    __table_args__ = ({"sqlite_with_rowid": False},)

    run_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the run"
    )
    kind: Mapped[str] = mapped_column(Text, primary_key=True, doc='"train" or "eval"')
    rollout_id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, doc="the number slime hands to generate_rollout"
    )
    note: Mapped[str | None] = mapped_column(Text, doc="why, if that was said")
    pinned_at: Mapped[datetime] = mapped_column(doc="when it was pinned")
    row_digest: Mapped[bytes | None] = mapped_column(doc="digest of the other columns; NULL: written before 0006")
