"""Digests as they are stored, and taken again of the rows as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, select

from slime_store.codecs.canonical import digest_values
from slime_store.mapping.encoded import SAMPLE_COLUMNS
from slime_store.models import Base, PromptRow, RolloutDigestRow, SampleRow
from slime_store.models.coverage import OF_ROLLOUT, SAMPLE_PARTS
from slime_store.repositories.digests import Key, key_columns, sample_values

_BUFFERED = 64  # rows of a stream that are in memory: each may have a document or a text of megabytes


class Retaken(NamedTuple):
    """The digest of a row as it is now."""

    key: Key
    digest: bytes
    row: RowMapping


class StoredDigests:
    """Reads digests, and the rows that they cover.

    Args:
        connection: inside a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of_rollout(self, pk: int) -> dict[str, bytes]:
        """Return the digests that were recorded with a rollout, by table, one after the other; none before 0006."""
        query = select(RolloutDigestRow.subject, RolloutDigestRow.digests).where(RolloutDigestRow.rollout_pk == pk)
        return {row[0]: row[1] for row in self._connection.execute(query)}

    def of_rows(self, pk: int, name: str) -> list[Retaken]:
        """Take the digests of the rows that a rollout has in one of ``OF_ROLLOUT`` but ``samples``, by key."""
        table = Base.metadata.tables[name]
        owner = table.c.id if name == "rollouts" else table.c.rollout_pk
        columns = [table.c[column] for column in OF_ROLLOUT[name]]
        found = []
        for row in self._stream(select(*columns).where(owner == pk)).mappings():
            key = tuple([row[column] for column in key_columns(table)])
            found.append(Retaken(key, digest_values(list(row.values())), row))
        return sorted(found, key=lambda each: each.key)

    def of_samples(self, pk: int, position: int | None) -> Iterator[tuple[int, bytes]]:
        """Take the digest of one sample, or of all: (position, digest) in order. Costs five queries."""
        columns = [PromptRow.digest if c == "prompt_pk" else SampleRow.__table__.c[c] for c in OF_ROLLOUT["samples"]]
        query = select(*columns).outerjoin(PromptRow, PromptRow.id == SampleRow.prompt_pk)
        at = SAMPLE_COLUMNS.index("position")
        with ExitStack() as results:
            parts = {
                name: _Parts(results.enter_context(closing(self._parts(name, pk, position)))) for name in SAMPLE_PARTS
            }
            for row in results.enter_context(closing(self._rows(query, SampleRow.__table__, pk, position))):
                mine = {name: part.of(row[at]) for name, part in parts.items()}
                texts, documents = mine["sample_texts"], mine["sample_documents"]
                values = sample_values(
                    row,
                    texts[0] if texts else None,
                    documents[0] if documents else None,
                    sorted(mine["sample_rewards"]),
                    mine["sample_weight_versions"],
                )
                yield row[at], digest_values(values)

    def small(self, name: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Yield (primary key, row) of one of the small tables, in order."""
        table = Base.metadata.tables[name]
        keys = table.primary_key.columns
        for row in self._stream(select(table).order_by(*keys)).mappings():
            yield tuple([row[key.name] for key in keys]), dict(row)

    def _parts(self, name: str, pk: int, position: int | None) -> Any:
        table = Base.metadata.tables[name]
        query = select(table.c.position, *[table.c[column] for column in SAMPLE_PARTS[name]])
        return self._rows(query, table, pk, position)

    def _rows(self, query: Any, table: Any, pk: int, position: int | None) -> Any:
        query = query.where(table.c.rollout_pk == pk)
        if position is not None:
            query = query.where(table.c.position == position)
        keys = [column for column in table.primary_key.columns if column.name != "rollout_pk"]
        return self._stream(query.order_by(*keys))

    def _stream(self, query: Any) -> Any:
        return self._connection.execute(query.execution_options(yield_per=_BUFFERED))


class _Parts:
    """Rows in order of the sample, taken sample by sample while another query goes through the samples.

    Args:
        rows: the position and what is covered.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        self._groups = groupby(rows, key=lambda row: row[0])
        self._next: tuple[int, list[tuple[Any, ...]]] | None = None
        self._advance()

    def of(self, position: int) -> list[tuple[Any, ...]]:
        """Return the rows of a sample, without the position; those before it belong to no sample."""
        while self._next is not None and self._next[0] < position:
            self._advance()
        return self._next[1] if self._next is not None and self._next[0] == position else []

    def _advance(self) -> None:
        found = next(self._groups, None)
        self._next = None if found is None else (found[0], [tuple(row[1:]) for row in found[1]])
