"""Rollouts, their groups, eval datasets and the data source's state."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class RolloutRow(Base):
    """One recording of what one call of the rollout function returned."""

    __tablename__ = "rollouts"
    __table_args__ = (
        UniqueConstraint("run_pk", "kind", "rollout_id", "attempt"),
        Index(None, "session_pk"),
        Index(None, "weight_version_pk"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, doc="key")
    run_pk: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), doc="the run")
    session_pk: Mapped[int] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), doc="the session that recorded it"
    )
    kind: Mapped[str] = mapped_column(Text, doc='"train", "eval", or "journal": one group of a rollout under way')
    rollout_id: Mapped[int] = mapped_column(doc="the number slime hands to generate_rollout")
    attempt: Mapped[int] = mapped_column(
        doc="1 for the first recording of this rollout_id; journal: numbers the groups"
    )
    status: Mapped[str] = mapped_column(Text, doc='"complete", or "open" for the journal')
    weight_version_pk: Mapped[int | None] = mapped_column(
        ForeignKey("weight_versions.id", ondelete="SET NULL"), doc="the version an eval was told it measures"
    )
    nesting: Mapped[str] = mapped_column(Text, doc="JSON: how the samples lie in lists; see mapping/nesting.py")
    layouts: Mapped[str] = mapped_column(Text, doc="JSON: attribute names of the samples, one list per distinct set")
    metrics: Mapped[str] = mapped_column(Text, doc='document; "null" when None')
    placeholders: Mapped[str] = mapped_column(Text, doc="JSON list of paths that lenient mode could not keep")
    n_groups: Mapped[int] = mapped_column(doc="train: elements of the outer list; eval: 0")
    n_samples: Mapped[int] = mapped_column(doc="samples")
    n_trajectories: Mapped[int] = mapped_column(doc="fan-out siblings counted once")
    n_tokens: Mapped[int] = mapped_column(doc="tokens, prompts included")
    n_bytes: Mapped[int] = mapped_column(doc="stored bytes of arrays, blobs, text and documents")
    started_at: Mapped[datetime] = mapped_column(doc="when recording it, or it itself, began")
    finished_at: Mapped[datetime | None] = mapped_column(doc="when it was recorded")
    pruned_at: Mapped[datetime | None] = mapped_column(doc="when its arrays were deleted; NULL: they are there")
    pruned_by: Mapped[str | None] = mapped_column(Text, doc="what asked for it, for people")


class RolloutStateRow(Base):
    """The data source's state at the end of a rollout; apart, since it can be large and is rarely read."""

    __tablename__ = "rollout_states"

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    state: Mapped[str] = mapped_column(Text, doc="document")


class SampleGroupRow(Base):
    """The samples of one prompt in one train rollout."""

    __tablename__ = "sample_groups"
    __table_args__ = ({"sqlite_with_rowid": False},)

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="order in the rollout, from 0")
    first_position: Mapped[int] = mapped_column(doc="of its first sample")
    n_samples: Mapped[int] = mapped_column(doc="samples")
    n_trajectories: Mapped[int] = mapped_column(doc="fan-out siblings counted once")
    group_index: Mapped[int | None] = mapped_column(doc="as the samples say, when they agree")


class EvalDatasetRow(Base):
    """One dataset of an eval rollout."""

    __tablename__ = "eval_datasets"
    __table_args__ = (Index(None, "name"), {"sqlite_with_rowid": False})

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the eval"
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="order in the eval, from 0")
    name: Mapped[str] = mapped_column(Text, doc="the exact key is in `content` when it is not clean text")
    first_position: Mapped[int] = mapped_column(doc="of its first sample")
    n_samples: Mapped[int] = mapped_column(doc="samples; they follow the first")
    nesting: Mapped[str | None] = mapped_column(Text, doc='NULL: the dataset dict has no "samples"')
    content: Mapped[str] = mapped_column(Text, doc='document: all keys but "samples", e.g. rewards, truncated')
