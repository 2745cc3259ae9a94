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
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="order in the rollout, from 0")
    group_position: Mapped[int | None] = mapped_column(doc="train: which group")
    sample_position: Mapped[int | None] = mapped_column(doc="train: which execution inside the group")
    segment_position: Mapped[int | None] = mapped_column(
        doc="train: which segment of a fan-out execution; NULL: not split"
    )
    dataset_position: Mapped[int | None] = mapped_column(doc="eval: which dataset")
    layout: Mapped[int] = mapped_column(SmallInteger, doc="index into rollouts.layouts")
    sample_index: Mapped[int | None] = mapped_column(doc="Sample.index")
    group_index: Mapped[int | None] = mapped_column(doc="Sample.group_index")
    execution_id: Mapped[int | None] = mapped_column(doc="Sample.rollout_id: shared by fan-out siblings, not the step")
    prompt_pk: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"), doc="the prompt; NULL: the sample has none")
    status: Mapped[str] = mapped_column(Text, doc='the plain word, e.g. "completed"')
    reward: Mapped[float | None] = mapped_column(doc="the number, when it is one and not NaN")
    reward_type: Mapped[str] = mapped_column(Text, doc="none, float, nan, int, bool, str, dict, other")
    eval_reward: Mapped[float | None] = mapped_column(
        doc='eval: what the dataset\'s "rewards" list says of this sample'
    )
    eval_truncated: Mapped[bool | None] = mapped_column(doc='eval: what the dataset\'s "truncated" list says')
    remove_sample: Mapped[bool] = mapped_column(doc="Sample.remove_sample")
    n_tokens: Mapped[int] = mapped_column(doc="tokens, prompt included")
    response_length: Mapped[int | None] = mapped_column(doc="Sample.response_length, tokens")
    effective_response_length: Mapped[int | None] = mapped_column(
        doc="sum of the loss mask, or response_length without one"
    )
    non_generation_time: Mapped[float | None] = mapped_column(doc="seconds")
    spec_accept_token_num: Mapped[int] = mapped_column(doc="of Sample.spec_info")
    spec_draft_token_num: Mapped[int] = mapped_column(doc="of Sample.spec_info")
    spec_verify_ct: Mapped[int] = mapped_column(doc="of Sample.spec_info")
    completion_token_num: Mapped[int] = mapped_column(doc="of Sample.spec_info")
    cached_tokens: Mapped[int] = mapped_column(doc="of Sample.prefix_cache_info")
    total_prompt_tokens: Mapped[int] = mapped_column(doc="of Sample.prefix_cache_info")
    first_weight_version_pk: Mapped[int | None] = mapped_column(
        doc="first entry of Sample.weight_versions; without a foreign key"
    )
    last_weight_version_pk: Mapped[int | None] = mapped_column(
        ForeignKey("weight_versions.id"), doc="last entry of Sample.weight_versions"
    )


class SampleRewardRow(Base):
    """One numeric entry of a dict reward."""

    __tablename__ = "sample_rewards"
    __table_args__ = (_of_sample(), Index(None, "key"), {"sqlite_with_rowid": False})

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False, doc="the rollout")
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="the sample")
    depth: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False, doc="1: a top-level key")
    key: Mapped[str] = mapped_column(Text, primary_key=True, doc="depth 1: the key itself; deeper: JSON list of keys")
    value: Mapped[float | None] = mapped_column(doc="NULL: NaN")


class SampleTextRow(Base):
    """The generated text and the label, as plain searchable text."""

    __tablename__ = "sample_texts"
    __table_args__ = (_of_sample(),)

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False, doc="the rollout")
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="the sample")
    label: Mapped[str | None] = mapped_column(Text, doc="Sample.label, when it is text")
    response: Mapped[str] = mapped_column(Text, doc="Sample.response")


class SampleDocumentRow(Base):
    """The metadata, and everything that has no column; absent when both are empty."""

    __tablename__ = "sample_documents"
    __table_args__ = (_of_sample(),)

    rollout_pk: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False, doc="the rollout")
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="the sample")
    metadata_: Mapped[str | None] = mapped_column("metadata", Text, doc="document; NULL: {}")
    extra: Mapped[str | None] = mapped_column(Text, doc="document: exact values by attribute name; NULL: {}")


class SampleArrayRow(Base):
    """An array pack: one field of consecutive samples, joined, narrowed and compressed."""

    __tablename__ = "sample_arrays"
    __table_args__ = (Index(None, "blob_pk"),)

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    field: Mapped[str] = mapped_column(Text, primary_key=True, doc="attribute of the samples, e.g. tokens")
    first_position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, doc="first sample in the pack")
    last_position: Mapped[int] = mapped_column(doc="last sample in the pack")
    codec: Mapped[str] = mapped_column(Text, doc='id of the codec, e.g. "zstd.1"')
    dtype: Mapped[str] = mapped_column(Text, doc="of the stored, narrowed values")
    layout: Mapped[str] = mapped_column(Text, doc="JSON: container, dtype and lengths; see mapping/packs.py")
    n_bytes: Mapped[int] = mapped_column(doc="stored")
    data: Mapped[bytes | None] = mapped_column(doc="NULL: in the blob")
    blob_pk: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("blobs.id"), doc="the blob of a large pack")
