"""What is known of a rollout without reading its samples: kept in the transaction that records it."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, SmallInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class RolloutWeightVersionRow(Base):
    """Rewards and lengths of the samples of one rollout that one weight version generated.

    Every sample of a complete rollout counts here, journalled groups do not. Samples that no version is known of have
    a row of their own.
    """

    __tablename__ = "rollout_weight_versions"
    __table_args__ = (Index(None, "weight_version_pk"), {"sqlite_with_rowid": False})

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    attribution: Mapped[str] = mapped_column(
        Text,
        primary_key=True,
        doc='which version a sample that several ones generated counts for: "last", "first", or "each" of them, once',
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="numbers the versions, from 0")
    weight_version_pk: Mapped[int | None] = mapped_column(
        ForeignKey("weight_versions.id"), doc="NULL: no version is known of these samples"
    )
    n_samples: Mapped[int] = mapped_column(doc="all of them, whatever their reward")
    n_rewards: Mapped[int] = mapped_column(doc="rewards that are numbers, infinities among them; NaN is not")
    n_none: Mapped[int] = mapped_column(doc="rewards that are None")
    n_nan: Mapped[int] = mapped_column(doc="rewards that are NaN")
    reward_sum: Mapped[float | None] = mapped_column(
        doc="rewards below 1e-100 count as zero; NULL: one is infinite or beyond 1e100"
    )
    reward_m2: Mapped[float | None] = mapped_column(
        doc="sum of the squared distances from these samples' mean; NULL as for reward_sum"
    )
    reward_min: Mapped[float | None] = mapped_column(doc="NULL: there is no number")
    reward_max: Mapped[float | None] = mapped_column(doc="NULL: there is no number")
    n_truncated: Mapped[int] = mapped_column(doc='samples with the status "truncated"')
    n_response_lengths: Mapped[int] = mapped_column(doc="samples whose response_length is known")
    response_length_sum: Mapped[float] = mapped_column(doc="tokens; not an integer, so that no sum overflows")


class RolloutMetricRow(Base):
    """One number of what a rollout function returned as metrics."""

    __tablename__ = "rollout_metrics"
    __table_args__ = ({"sqlite_with_rowid": False},)

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    depth: Mapped[int] = mapped_column(
        SmallInteger, primary_key=True, autoincrement=False, doc="1: a key of the metrics; more: a dict inside"
    )
    key: Mapped[str] = mapped_column(Text, primary_key=True, doc="depth 1: the key itself; deeper: JSON list of keys")
    value: Mapped[float | None] = mapped_column(doc="NULL: NaN")
