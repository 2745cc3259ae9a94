"""Rows as they are, from one store into another: what belongs to a rollout, and what belongs to runs.

Keys of runs, sessions, weight versions and rollouts are kept. Prompts and shared blobs are found by content, so their
keys may differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, text, update

from slime_store.blobs import Payload, PayloadWriter
from slime_store.database import chunked, engine_config, insert_rows, translated
from slime_store.mapping.encoded import EncodedPrompt
from slime_store.models import (
    AdoptionRow,
    Base,
    BlobReferenceRow,
    BlobRow,
    ImportRow,
    PromptRow,
    RolloutRow,
    RunRow,
    SampleArrayRow,
    SampleRow,
    SessionRow,
)
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.prompts import PromptRepository

_TABLES = Base.metadata.sorted_tables  # parents first
_ROLLOUTS: Table = RolloutRow.__table__  # type: ignore[assignment]
_SPECIAL = {"blob_references", AdoptionRow.__tablename__}
_SHARED = {"prompts", "blobs", "blob_parts"}

OF_ROLLOUT = [table for table in _TABLES if "rollout_pk" in table.c and table.name not in _SPECIAL]
"""Tables whose rows belong to one rollout; they never change once it is there."""

OF_RUNS = [
    t for t in _TABLES if t not in OF_ROLLOUT and t is not _ROLLOUTS and t.name not in _SHARED | {"blob_references"}
]
"""Small tables whose rows may change: runs, sessions, weight versions, checkpoints, adoptions and the like."""

_FIXED = ("id", "run_pk", "session_pk", "kind", "rollout_id", "attempt", "started_at")
IDENTITY = (*_FIXED, "status", "n_bytes", "pruned_at")
"""Columns of ``rollouts`` that tell whether two stores hold the same recording (the first), in the same state."""

_WRITERS: dict[str, tuple[Any, ...]] = {
    "run": (RunRow.id, RunRow.name, RunRow.created_at),
    "session": (
        SessionRow.id,
        SessionRow.pid,
        SessionRow.run_pk,
        SessionRow.ordinal,
        SessionRow.host,
        SessionRow.started_at,
    ),
}
"""By what a run or session is known to be the same in two stores."""

_NARROW, _WIDE = 1000, 16  # rows at a time; a wide one may have megabytes
_WIDE_TABLES = {"sample_arrays", "sample_texts", "sample_documents", "rollout_states", "eval_datasets", "imports"}


def is_same_recording(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Tell whether two of IDENTITY are of one recording, perhaps before and after it was pruned."""
    return one[: len(_FIXED)] == other[: len(_FIXED)]


class CopyRepository:
    """One side of a copy.

    Args:
        connection: inside a transaction.
        blobs: this side's blobs.
    """

    def __init__(self, connection: Connection, blobs: BlobRepository) -> None:
        self.connection = connection
        self.blobs = blobs

    def _own_errors(self) -> AbstractContextManager[None]:
        """Give errors in the body the name of this side: one is read inside a transaction of the other."""
        return translated(engine_config(self.connection.engine))

    def rollouts(self) -> dict[int, tuple[Any, ...]]:
        """Return IDENTITY of every rollout, by key."""
        query = select(*[_ROLLOUTS.c[name] for name in IDENTITY]).order_by(_ROLLOUTS.c.id)
        return {row[0]: tuple(row) for row in self.connection.execute(query)}

    def imported(self) -> set[int]:
        """Return the keys of the rollouts that were imported."""
        return set(self.connection.execute(select(ImportRow.rollout_pk)).scalars())

    def writers(self) -> set[tuple[Any, ...]]:
        """Return every ("run", key, name, ...) and ("session", key, pid, ...): the same in two stores if all of it is.

        Whoever records has a session of his own, so this tells whether anybody else has. Reads narrow columns only.
        """
        return {(kind, *row) for kind, columns in _WRITERS.items() for row in self.connection.execute(select(*columns))}

    def last_key(self) -> int:
        """Return a key that no rollout has exceeded that was ever in this store."""
        if self.connection.dialect.name == "postgresql":
            query = "SELECT pg_sequence_last_value(pg_get_serial_sequence('rollouts', 'id')::regclass)"
        else:
            query = "SELECT seq FROM sqlite_sequence WHERE name = 'rollouts'"
        return int(self.connection.execute(text(query)).scalar() or 0)

    def identity(self, pk: int) -> tuple[Any, ...] | None:
        """Return IDENTITY of one rollout, or None."""
        query = select(*[_ROLLOUTS.c[name] for name in IDENTITY]).where(_ROLLOUTS.c.id == pk)
        with self._own_errors():
            row = self.connection.execute(query).one_or_none()
        return None if row is None else tuple(row)

    def rows(self, table: Table) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return the rows of one of OF_RUNS by primary key."""
        keys = [column.name for column in table.primary_key.columns]
        rows = self.connection.execute(select(table)).mappings()
        return {tuple(row[key] for key in keys): dict(row) for row in rows}

    def make_alike(self, table: Table, wanted: Mapping[tuple[Any, ...], dict[str, Any]]) -> None:
        """Give one of OF_RUNS the rows wanted: insert, change, delete."""
        here = self.rows(table)
        keys = [column.name for column in table.primary_key.columns]
        same = [table.c[key] == bindparam(f"_{key}") for key in keys]
        gone = [{f"_{key}": value for key, value in zip(keys, pk, strict=True)} for pk in here.keys() - wanted.keys()]
        if gone:
            self.connection.execute(delete(table).where(*same), gone)
        for pk in [pk for pk, row in wanted.items() if pk in here and here[pk] != row]:
            values = {f"_{key}": value for key, value in zip(keys, pk, strict=True)}
            self.connection.execute(update(table).where(*same).values(wanted[pk]), values)
        new = [row for pk, row in wanted.items() if pk not in here]
        if new:
            self.connection.execute(insert(table), new)
        self.advance(table)

    def advance(self, table: Table) -> None:
        """Let PostgreSQL count on behind the keys that were given."""
        column = table.primary_key.columns.values()[0]
        if self.connection.dialect.name == "postgresql" and column.name == "id":
            sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
            query = f"SELECT setval({sequence}, greatest(max(id), 1), max(id) IS NOT NULL) FROM {table.name}"
            self.connection.execute(text(query))

    # -- one rollout -------------------------------------------------------------------------------

    def add_rollout(self, source: CopyRepository, pk: int, writer: PayloadWriter) -> None:
        """Copy a rollout with everything that belongs to it."""
        with source._own_errors():
            row = source.connection.execute(select(_ROLLOUTS).where(_ROLLOUTS.c.id == pk)).mappings().one()
        self.connection.execute(insert(_ROLLOUTS).values(**row))
        self.advance(_ROLLOUTS)
        prompts = self._add_prompts(source, pk)
        blobs = self._add_shared_blobs(source, pk, writer)
        referred = list(blobs.values())
        for table in OF_ROLLOUT:
            columns = [column.name for column in table.columns]
            change = self._changes(table, columns, source, prompts, writer, referred)
            for rows in _batches(source.stream(table, pk), _WIDE if table.name in _WIDE_TABLES else _NARROW):
                insert_rows(self.connection, table, columns, [change(tuple(row)) for row in rows])
        self.blobs.refer(pk, referred)

    def stream(self, table: Table, pk: int) -> Iterator[Any]:
        """Yield the rows that a rollout has in a table."""
        size = _WIDE if table.name in _WIDE_TABLES else _NARROW
        query = select(table).where(table.c.rollout_pk == pk).execution_options(yield_per=size)
        with self._own_errors():
            yield from self.connection.execute(query)

    def _changes(
        self,
        table: Table,
        columns: Sequence[str],
        source: CopyRepository,
        prompts: Mapping[int, int],
        writer: PayloadWriter,
        referred: list[int],
    ) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """Return what turns a row's keys into those of this side."""
        if table is SampleRow.__table__:
            at = columns.index("prompt_pk")
            return lambda row: (*row[:at], None if row[at] is None else prompts[row[at]], *row[at + 1 :])
        if table is SampleArrayRow.__table__:
            blob_at = columns.index("blob_pk")

            def with_blob(row: tuple[Any, ...]) -> tuple[Any, ...]:
                if row[blob_at] is None:
                    return row
                referred.extend(self.blobs.add([source.payload(row[blob_at], writer)]))
                return (*row[:blob_at], referred[-1], *row[blob_at + 1 :])

            return with_blob
        return lambda row: row

    def _add_prompts(self, source: CopyRepository, pk: int) -> dict[int, int]:
        keys: dict[int, int] = {}
        for batch in _batches(source.prompts(pk), _WIDE):
            prompts = {bytes(row.digest): EncodedPrompt(bytes(row.digest), row.text, row.document) for row in batch}
            found = PromptRepository(self.connection).ensure(prompts)
            keys |= {row.id: found[bytes(row.digest)] for row in batch}
        return keys

    def _add_shared_blobs(self, source: CopyRepository, pk: int, writer: PayloadWriter) -> dict[int, int]:
        """Copy the contents that are not here yet, one at a time; return the key here for each key there."""
        keys: dict[int, int] = {}
        for chunk in chunked(source.shared_blobs(pk)):
            known = self.blobs.known(digest for _, digest in chunk)
            for blob_pk, digest in chunk:
                if digest not in known:
                    added = self.blobs.add_shared({digest: source.payload(blob_pk, writer)})
                    known[digest] = (added[digest], 0)
                keys[blob_pk] = known[digest][0]
        return keys

    def prompts(self, pk: int) -> Iterator[Any]:
        """Yield the rows of the prompts that a rollout refers to."""
        wanted = select(SampleRow.prompt_pk).where(SampleRow.rollout_pk == pk, SampleRow.prompt_pk.is_not(None))
        query = select(PromptRow.__table__).where(PromptRow.id.in_(wanted.distinct()))
        with self._own_errors():
            yield from self.connection.execute(query.execution_options(yield_per=_WIDE))

    def shared_blobs(self, pk: int) -> list[tuple[int, str]]:
        """Return (key, digest) of the shared contents that a rollout refers to."""
        query = (
            select(BlobRow.id, BlobRow.digest)
            .join(BlobReferenceRow, BlobReferenceRow.blob_pk == BlobRow.id)
            .where(BlobReferenceRow.rollout_pk == pk, BlobRow.digest.is_not(None))
        )
        with self._own_errors():
            return [(row[0], str(row[1])) for row in self.connection.execute(query)]

    def payload(self, blob_pk: int, writer: PayloadWriter) -> Payload:
        """Return a blob's stored bytes, put where the other side keeps payloads of this size."""
        with self._own_errors():
            codec, dtype, data = self.blobs.read(blob_pk)
            raw = self.connection.execute(select(BlobRow.n_raw_bytes).where(BlobRow.id == blob_pk)).scalar_one()
        return writer.keep(codec, dtype, raw, data)

    def fingerprint(self, pk: int) -> int:
        """Return a number that two stores share when they hold the same rollout.

        Reads all of it but the contents that rollouts share, which have digests. The keys of prompts and blobs do not
        matter, nor does the order of rows, which depends on a database's collation.
        """
        total = _hash(self.connection.execute(select(_ROLLOUTS).where(_ROLLOUTS.c.id == pk)).one())
        for number, table in enumerate(OF_ROLLOUT, 2):
            if table is SampleRow.__table__:
                query = select(*[c for c in table.columns if c.name != "prompt_pk"], PromptRow.digest).outerjoin(
                    PromptRow, PromptRow.id == SampleRow.prompt_pk
                )
                rows: Iterator[Any] = iter(
                    self.connection.execute(
                        query.where(SampleRow.rollout_pk == pk).execution_options(yield_per=_NARROW)
                    )
                )
            elif table is SampleArrayRow.__table__:
                rows = (self._with_stored_bytes(row) for row in self.stream(table, pk))
            else:
                rows = self.stream(table, pk)
            total += number * sum(_hash(row) for row in rows)
        total += sum(_hash([digest]) for _, digest in self.shared_blobs(pk))
        return total

    def _with_stored_bytes(self, row: Any) -> list[Any]:
        values = dict(row._mapping)
        blob_pk = values.pop("blob_pk")
        if blob_pk is not None:
            values["data"] = self.blobs.read(blob_pk)[2]
        return list(values.values())

    def size(self, pk: int) -> tuple[int, int]:
        """Return the numbers of samples and bytes of a rollout."""
        query = select(RolloutRow.n_samples, RolloutRow.n_bytes).where(_ROLLOUTS.c.id == pk)
        with self._own_errors():
            row = self.connection.execute(query).one()
        return row[0], row[1]

    def count(self, table: Table) -> int:
        """Return the number of rows of a table."""
        return int(self.connection.execute(select(func.count()).select_from(table)).scalar_one())


def _batches(rows: Any, size: int) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def _hash(values: Any) -> int:
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        if isinstance(value, (bytes, memoryview)):
            digest.update(b"b%d:" % len(value))
            digest.update(value)
        else:
            if isinstance(value, float):
                value += 0.0  # SQLite keeps no sign of zero
            digest.update(f"{value!r}\0".encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big")
