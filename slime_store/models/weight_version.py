"""Weight versions and which samples they generated."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class WeightVersionRow(Base):
    """One version of the policy weights, as the rollout engine named it inside one session."""

    __tablename__ = "weight_versions"
    __table_args__ = (
        UniqueConstraint("session_pk", "label"),
        UniqueConstraint("run_pk", "ordinal"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, doc="key")
    run_pk: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), doc="the run")
    session_pk: Mapped[int] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), doc="the session whose engine named it"
    )
    label: Mapped[str] = mapped_column(Text, doc='opaque, e.g. "42": compare for equality only, never sort as text')
    ordinal: Mapped[int] = mapped_column(doc="order of first use in the run, from 1")
    first_seen_at: Mapped[datetime] = mapped_column(doc="when it was first recorded")
    params: Mapped[str] = mapped_column(Text, doc='document: list of ParamInfo; "null" when none was given')
    notes: Mapped[str] = mapped_column(Text, doc="document: what record_weight_version was given as metadata")
    row_digest: Mapped[bytes | None] = mapped_column(doc="digest of the other columns; NULL: written before 0006")


class SampleWeightVersionRow(Base):
    """A sample's `weight_versions` list, run-length encoded and in order."""

    __tablename__ = "sample_weight_versions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["rollout_pk", "position"], ["samples.rollout_pk", "samples.position"], ondelete="CASCADE"
        ),
        Index(None, "weight_version_pk"),
        {"sqlite_with_rowid": False},
    )

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False, doc="the rollout")
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="the sample")
    run_position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="which run of equal labels")
    weight_version_pk: Mapped[int] = mapped_column(ForeignKey("weight_versions.id"), doc="the version")
    n_turns: Mapped[int] = mapped_column(doc="how many entries in a row have this label")
