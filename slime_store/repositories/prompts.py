"""Prompts, one row for each distinct content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from sqlalchemy import Connection, Table, delete, exists, select

from slime_store.database import chunked
from slime_store.mapping.encoded import EncodedPrompt
from slime_store.models import PromptRow, SampleRow
from slime_store.repositories.inserts import insert_unless_present

TABLE = cast(Table, PromptRow.__table__)


class PromptRepository:
    """Reads and writes prompts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ensure(self, prompts: Mapping[bytes, EncodedPrompt]) -> dict[bytes, int]:
        """Return the key of each prompt by digest, adding those that are not there yet."""
        keys = self._keys(list(prompts))
        missing = sorted(prompts.keys() - keys.keys())
        if missing:
            rows = [(each, prompts[each].text, prompts[each].document, each.hex()[:16]) for each in missing]
            insert_unless_present(self._connection, TABLE, ("digest", "text", "document", "prompt_id"), rows)
            keys |= self._keys(missing)
        return keys

    def get(self, pks: Iterable[int]) -> dict[int, tuple[str | None, str | None]]:
        """Return (text, document) by key."""
        found: dict[int, tuple[str | None, str | None]] = {}
        for chunk in chunked(sorted(set(pks))):
            query = select(PromptRow.id, PromptRow.text, PromptRow.document).where(PromptRow.id.in_(chunk))
            found |= {row[0]: (row[1], row[2]) for row in self._connection.execute(query)}
        return found

    def digests(self, pks: Iterable[int]) -> dict[int, bytes]:
        """Return digests by key; the prompts themselves are not read."""
        found: dict[int, bytes] = {}
        for chunk in chunked(sorted(set(pks))):
            query = select(PromptRow.id, PromptRow.digest).where(PromptRow.id.in_(chunk))
            found |= {row[0]: bytes(row[1]) for row in self._connection.execute(query)}
        return found

    def delete_unused(self, pks: Iterable[int]) -> None:
        """Delete those of the given prompts that no sample has."""
        for chunk in chunked(sorted(set(pks))):
            used = exists().where(SampleRow.prompt_pk == PromptRow.id)
            self._connection.execute(delete(PromptRow).where(PromptRow.id.in_(chunk), ~used))

    def _keys(self, digests: list[bytes]) -> dict[bytes, int]:
        keys: dict[bytes, int] = {}
        for chunk in chunked(digests):
            query = select(PromptRow.digest, PromptRow.id).where(PromptRow.digest.in_(chunk))
            keys |= {bytes(row[0]): row[1] for row in self._connection.execute(query)}
        return keys
