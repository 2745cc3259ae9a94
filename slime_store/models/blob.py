"""Blobs: large bytes, shared by content where sharing is possible."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, SmallInteger, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class BlobRow(Base):
    """One stored byte string."""

    __tablename__ = "blobs"
    __table_args__ = (UniqueConstraint("digest"), Index(None, "file_name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    digest: Mapped[str | None] = mapped_column(Text)  # hex BLAKE2b-256 of the content; None: never shared
    codec: Mapped[str] = mapped_column(Text)
    dtype: Mapped[str] = mapped_column(Text)  # element type the codec was given, e.g. "u1", "<u2"
    n_raw_bytes: Mapped[int]  # before the codec
    n_bytes: Mapped[int]  # stored
    file_name: Mapped[str | None] = mapped_column(Text)  # None: in blob_parts; else a file in the side directory


class BlobPartRow(Base):
    """A piece of a blob that lives in the database."""

    __tablename__ = "blob_parts"

    blob_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("blobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    part: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    data: Mapped[bytes]


class BlobReferenceRow(Base):
    """Which rollouts need a blob; a blob without a reference is garbage."""

    __tablename__ = "blob_references"
    __table_args__ = (Index(None, "blob_pk"), {"sqlite_with_rowid": False})

    rollout_pk: Mapped[int] = mapped_column(
        BigKey, ForeignKey("rollouts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    blob_pk: Mapped[int] = mapped_column(BigKey, ForeignKey("blobs.id"), primary_key=True, autoincrement=False)
