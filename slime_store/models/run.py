"""Runs and the sessions that write to them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class RunRow(Base):
    """One training run."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    config: Mapped[str] = mapped_column(Text)  # document: of the first start; "null" when none was given
    created_at: Mapped[datetime]


class SessionRow(Base):
    """One process attached to a run as a writer; a restart is a new session."""

    __tablename__ = "sessions"
    __table_args__ = (UniqueConstraint("run_pk", "ordinal"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    run_pk: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    ordinal: Mapped[int]  # 1 for the run's first session
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int]
    started_at: Mapped[datetime]
    client: Mapped[str] = mapped_column(Text)  # document: versions of slime_store, Python, ...
    config: Mapped[str] = mapped_column(Text)  # document: what this session was started with; "null" when not given
