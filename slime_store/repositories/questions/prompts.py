"""Prompts that are no plain text: which of them contain a text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, or_, select

from slime_store.errors import BlobCorruptError, BlobMissingError
from slime_store.mapping.shown import texts_in
from slime_store.mapping.text import searchable
from slime_store.models import PromptRow, SampleRow
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.questions.conditions import Condition, contains

_ELSEWHERE = ('{"$str"', '{"$text"')  # texts that the document does not hold as they are


class PromptTextRepository:
    """Searches in prompts of chat messages, whose texts are inside a document.

    Args:
        connection: inside a transaction.
        blobs: where long texts are.
    """

    def __init__(self, connection: Connection, blobs: BlobRepository) -> None:
        self._connection = connection
        self._blobs = blobs

    def containing(self, text: str, rollout_pks: Sequence[int], conditions: Sequence[Condition]) -> list[int]:
        """Return the keys of the prompts of these samples of which a text contains ``text``.

        Costs one query, and two for each text of more than 64 KiB. A document that may contain the text is parsed.
        """
        needle = searchable(text)
        escaped = json.dumps(needle, ensure_ascii=False)[1:-1]
        dialect = self._connection.dialect
        some = select(SampleRow.prompt_pk).where(SampleRow.rollout_pk.in_(rollout_pks), *conditions)
        query = select(PromptRow.id, PromptRow.document).where(
            PromptRow.id.in_(some),
            PromptRow.document.is_not(None),
            or_(*[contains(PromptRow.document, part, dialect) for part in (escaped, *_ELSEWHERE)]),
        )
        rows = self._connection.execute(query).all()  # of a chunk of rollouts
        return [pk for pk, document in rows if self._contains(str(document), needle)]

    def _contains(self, document: str, needle: str) -> bool:
        try:
            return any(needle in text for text in texts_in(json.loads(document), self._payload))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BlobCorruptError(f"a prompt does not decode: {type(error).__name__}: {error}") from error

    def _payload(self, name: str) -> bytes:
        contents = self._blobs.contents([name])
        if name not in contents:
            raise BlobMissingError(name)
        return contents[name]
