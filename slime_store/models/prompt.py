"""Prompts, stored once each."""

from __future__ import annotations

from sqlalchemy import Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from slime_store.models.base import Base, BigKey


class PromptRow(Base):
    """One distinct prompt: a text, or a document (chat messages)."""

    __tablename__ = "prompts"
    __table_args__ = (UniqueConstraint("digest"), Index(None, "prompt_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, doc="key")
    digest: Mapped[bytes] = mapped_column(doc="BLAKE2b-256 of the kind and the exact content")
    text: Mapped[str | None] = mapped_column(Text, doc="the prompt, when it is clean text")
    document: Mapped[str | None] = mapped_column(Text, doc="otherwise: the exact document")
    prompt_id: Mapped[str | None] = mapped_column(Text, doc="first 16 hex digits of the digest, for SQL users")
