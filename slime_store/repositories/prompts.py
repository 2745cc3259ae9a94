"""Prompts, one row for each distinct content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from sqlalchemy import Connection, Table, delete, exists, select

from slime_store.database import chunked
from slime_store.mapping.encoded import EncodedPrompt
from slime_store.models import PromptRow, SampleRow
from slime_store.repositories.inserts import added_and_held, insert_unless_present, keys_of
from slime_store.repositories.locks import unused_and_locked

TABLE = cast(Table, PromptRow.__table__)


class PromptRepository:
    """Reads and writes prompts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ensure(self, prompts: Mapping[bytes, EncodedPrompt]) -> dict[bytes, int]:
        """Return the key of each prompt by digest, adding those that are not there yet.

        Nobody deletes them until the transaction ends.
        """
        keys = keys_of(self._connection, PromptRow, list(prompts))

        def add(missing: Sequence[bytes]) -> set[bytes]:
            rows = [(each, prompts[each].text, prompts[each].document, each.hex()[:16]) for each in missing]
            return insert_unless_present(self._connection, TABLE, ("digest", "text", "document", "prompt_id"), rows)

        return keys | added_and_held(self._connection, PromptRow, prompts.keys() - keys.keys(), add)[0]

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
        """Delete those of the given prompts that no sample has; those that another transaction holds stay."""
        for chunk in chunked(sorted(set(pks))):
            unused = ~exists().where(SampleRow.prompt_pk == PromptRow.id)
            found = unused_and_locked(self._connection, PromptRow, unused, chunk)
            self._connection.execute(delete(PromptRow).where(PromptRow.id.in_(found), unused))
