"""Samples: narrow scalars here; text, documents and arrays in tables of their own."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, SmallInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


def _of_sample() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["rollout_pk", "position"], ["samples.rollout_pk", "samples.position"], ondelete="CASCADE"
    )


class SampleRow(Base):
    """One sample's scalars. A value that its column cannot hold exactly is also in `sample_documents.extra`."""

    __tablename__ = "samples"
    __table_args__ = (
        Index(None, "prompt_pk"),
        Index(None, "last_weight_version_pk"),
        {"sqlite_with_rowid": False},
    )

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # order in the rollout, from 0
    group_position: Mapped[int | None]  # train: which group
    sample_position: Mapped[int | None]  # train: which execution inside the group
    segment_position: Mapped[int | None]  # train: which segment of a fan-out execution; None: not split
    dataset_position: Mapped[int | None]  # eval: which dataset
    layout: Mapped[int] = mapped_column(SmallInteger)  # index into rollouts.layouts
    sample_index: Mapped[int | None]  # Sample.index
    group_index: Mapped[int | None]
    execution_id: Mapped[int | None]  # Sample.rollout_id: shared by fan-out siblings, not the step
    prompt_pk: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"))
    status: Mapped[str] = mapped_column(Text)  # the plain word, e.g. "completed"
    reward: Mapped[float | None]  # the number, when it is one and not NaN
    reward_type: Mapped[str] = mapped_column(Text)  # none, float, nan, int, bool, str, dict, other
    eval_reward: Mapped[float | None]  # eval: what the dataset's "rewards" list says of this sample
    eval_truncated: Mapped[bool | None]  # eval: what the dataset's "truncated" list says
    remove_sample: Mapped[bool]
    n_tokens: Mapped[int]
    response_length: Mapped[int | None]
    effective_response_length: Mapped[int | None]  # sum of the loss mask, or response_length without one
    non_generation_time: Mapped[float | None]  # seconds
    spec_accept_token_num: Mapped[int]
    spec_draft_token_num: Mapped[int]
    spec_verify_ct: Mapped[int]
    completion_token_num: Mapped[int]
    cached_tokens: Mapped[int]
    total_prompt_tokens: Mapped[int]
    first_weight_version_pk: Mapped[int | None]  # as in sample_weight_versions, which has the foreign key
    last_weight_version_pk: Mapped[int | None] = mapped_column(ForeignKey("weight_versions.id"))


class SampleRewardRow(Base):
    """One numeric entry of a dict reward."""

    __tablename__ = "sample_rewards"
    __table_args__ = (_of_sample(), Index(None, "key"), {"sqlite_with_rowid": False})

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    depth: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)  # 1: a top-level key
    key: Mapped[str] = mapped_column(Text, primary_key=True)  # depth 1: the key itself; deeper: JSON list of keys
    value: Mapped[float | None]  # None: NaN


class SampleTextRow(Base):
    """The generated text and the label, as plain searchable text."""

    __tablename__ = "sample_texts"
    __table_args__ = (_of_sample(),)

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    label: Mapped[str | None] = mapped_column(Text)
    response: Mapped[str] = mapped_column(Text)


class SampleDocumentRow(Base):
    """The metadata, and everything that has no column; absent when both are empty."""

    __tablename__ = "sample_documents"
    __table_args__ = (_of_sample(),)

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    metadata_: Mapped[str | None] = mapped_column("metadata", Text)  # document; None: {}
    extra: Mapped[str | None] = mapped_column(Text)  # document: exact values by attribute name; None: {}


class SampleArrayRow(Base):
    """An array pack: one field of consecutive samples, joined, narrowed and compressed."""

    __tablename__ = "sample_arrays"
    __table_args__ = (Index(None, "blob_pk"),)

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    field: Mapped[str] = mapped_column(Text, primary_key=True)
    first_position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_position: Mapped[int]
    codec: Mapped[str] = mapped_column(Text)
    dtype: Mapped[str] = mapped_column(Text)  # of the stored, narrowed values
    layout: Mapped[str] = mapped_column(Text)  # JSON: container, dtype and lengths; see mapping/packs.py
    n_bytes: Mapped[int]
    data: Mapped[bytes | None]  # None: in the blob
    blob_pk: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("blobs.id"))
