"""Runs and the sessions that write to them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class RunRow(Base):
    """One training run."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, doc="key")
    name: Mapped[str] = mapped_column(Text, doc="its name, unique in the store")
    config: Mapped[str] = mapped_column(Text, doc='document: of the first start; "null" when none was given')
    created_at: Mapped[datetime] = mapped_column(doc="when it was first opened")
    row_digest: Mapped[bytes | None] = mapped_column(doc="digest of the other columns; NULL: written before 0006")


class SessionRow(Base):
    """One process attached to a run as a writer; a restart is a new session."""

    __tablename__ = "sessions"
    __table_args__ = (UniqueConstraint("run_pk", "ordinal"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, doc="key")
    run_pk: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), doc="the run")
    ordinal: Mapped[int] = mapped_column(doc="1 for the run's first session")
    host: Mapped[str] = mapped_column(Text, doc="name of the machine")
    pid: Mapped[int] = mapped_column(doc="process id")
    started_at: Mapped[datetime] = mapped_column(doc="when it first wrote")
    client: Mapped[str] = mapped_column(
        Text, doc="document: versions of slime_store, Python, ..., and what tells the process from others"
    )
    config: Mapped[str] = mapped_column(Text, doc='document: what this session was started with; "null" when not given')
    checkpoint_rollout_id: Mapped[int | None] = mapped_column(
        doc="the checkpoint it started from; -1: from the start; NULL: not known"
    )
    lineage: Mapped[str | None] = mapped_column(Text, doc="document: what must agree for its rollouts to be adopted")
    row_digest: Mapped[bytes | None] = mapped_column(doc="digest of the other columns; NULL: written before 0006")


class CheckpointRow(Base):
    """A training checkpoint that was saved after a rollout."""

    __tablename__ = "checkpoints"
    __table_args__ = ({"sqlite_with_rowid": False},)

    session_pk: Mapped[int] = mapped_column(
        BigKey,
        ForeignKey("sessions.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        doc="the session that saved it",
    )
    rollout_id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, doc="the rollout after which it was saved"
    )
    saved_at: Mapped[datetime] = mapped_column(doc="when")
    row_digest: Mapped[bytes | None] = mapped_column(doc="digest of the other columns; NULL: written before 0006")


class AdoptionRow(Base):
    """A session was handed a recorded rollout instead of generating it."""

    __tablename__ = "adoptions"
    __table_args__ = (Index(None, "rollout_pk"), {"sqlite_with_rowid": False})

    session_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the session"
    )
    rollout_pk: Mapped[int] = mapped_column(
        BigKey,
        ForeignKey("rollouts.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        doc="the rollout it was handed",
    )
    adopted_at: Mapped[datetime] = mapped_column(doc="when")
    row_digest: Mapped[bytes | None] = mapped_column(doc="digest of the other columns; NULL: written before 0006")
