"""Blobs: large bytes, shared by content where sharing is possible."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, SmallInteger, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class BlobRow(Base):
    """One stored byte string."""

    __tablename__ = "blobs"
    __table_args__ = (UniqueConstraint("digest"), Index(None, "file_name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, doc="key")
    digest: Mapped[str | None] = mapped_column(Text, doc="hex BLAKE2b-256 of the content; NULL: never shared")
    codec: Mapped[str] = mapped_column(Text, doc='id of the codec, e.g. "zstd.1"; its meaning is frozen')
    dtype: Mapped[str] = mapped_column(Text, doc='element type the codec was given, e.g. "u1", "<u2"')
    n_raw_bytes: Mapped[int] = mapped_column(doc="before the codec")
    n_bytes: Mapped[int] = mapped_column(doc="stored")
    file_name: Mapped[str | None] = mapped_column(Text, doc="NULL: in blob_parts; else a file in the side directory")


class BlobPartRow(Base):
    """A piece of a blob that lives in the database."""

    __tablename__ = "blob_parts"

    blob_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("blobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the blob"
    )
    part: Mapped[int] = mapped_column(
        SmallInteger, primary_key=True, autoincrement=False, doc="order of the pieces, from 0"
    )
    data: Mapped[bytes] = mapped_column(doc="stored bytes")


class BlobReferenceRow(Base):
    """Which rollouts need a blob; a blob without a reference is garbage."""

    __tablename__ = "blob_references"
    __table_args__ = (Index(None, "blob_pk"), {"sqlite_with_rowid": False})

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, doc="the rollout"
    )
    blob_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("blobs.id"), primary_key=True, autoincrement=False, doc="the blob it needs"
    )
