"""Digests of what a rollout's rows say: to notice rows that have changed by accident."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class RolloutDigestRow(Base):
    """The digests of a rollout's rows in one table; a rollout that was recorded before 0006 has none."""

    __tablename__ = "rollout_digests"

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    subject: Mapped[str] = mapped_column(
        Text, primary_key=True, doc="the table; `samples` stands for the tables of texts, documents and the like, too"
    )
    digests: Mapped[bytes] = mapped_column(
        doc="16 bytes a row, in the order of its key: a version, and BLAKE2b; see models/coverage.py"
    )
