"""Blobs: rows that say where bytes are, and the parts of those that are in the database."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import Connection, Row, Table, delete, exists, func, select, update

from slime_store.blobs import PART_BYTES, BlobDirectory, Payload
from slime_store.codecs.arrays import decode_for_reading, dtype_of
from slime_store.database import chunked, in_binary, insert_rows
from slime_store.errors import BlobCorruptError, BlobMissingError
from slime_store.models import BlobPartRow, BlobReferenceRow, BlobRow
from slime_store.repositories.inserts import added_and_held, insert_unless_present
from slime_store.repositories.locks import held, unused_and_locked

_AT_ONCE_BYTES = 2 << 20
"""Parts that a query's result may hold at a time, beside the blob that is put together from them."""

_IN_PARTS = (
    select(func.coalesce(func.sum(func.length(BlobPartRow.data)), 0))
    .where(BlobPartRow.blob_pk == BlobRow.id)
    .correlate(BlobRow)
    .scalar_subquery()
)  # neither database reads a value to say how long it is

_IN_DOCUMENTS = re.compile(r'"blob":\s*"([0-9a-f]{64})"')


class BlobRepository:
    """Reads and writes blobs.

    Args:
        connection: inside a transaction.
        directory: the side files, or None where there are none.
    """

    def __init__(self, connection: Connection, directory: BlobDirectory | None) -> None:
        self._connection = connection
        self._directory = directory
        self._lock = threading.Lock()
        self.replaced_files: list[str] = []  # side files that no row names any more: to be removed after the commit

    def known(self, digests: Iterable[str], *, hold: bool = False) -> dict[str, tuple[int, int]]:
        """Return (key, stored bytes) of those contents that are in the store with as many bytes as they must have.

        So not of those whose side file or parts are gone or cut short. Nothing is read to find that out: what a size
        does not show, ``verify`` does. With ``hold``, nobody deletes them until the transaction ends.
        """
        columns = BlobRow.digest, BlobRow.id, BlobRow.n_bytes, BlobRow.file_name, _IN_PARTS.label("in_parts")
        rows: list[Row[Any]] = []
        for chunk in chunked(sorted(set(digests))):
            query = select(*columns).where(BlobRow.digest.in_(chunk))
            rows += self._connection.execute(held(query, BlobRow) if hold else query)
        return {row.digest: (row.id, row.n_bytes) for row in rows if self._is_whole(row)}

    def _is_whole(self, row: Row[Any]) -> bool:
        if row.file_name is None:
            return bool(row.in_parts == row.n_bytes)
        return self._directory is not None and self._directory.has(row.file_name, row.n_bytes)

    def add_shared(self, payloads: Mapping[str, Payload]) -> dict[str, int]:
        """Add contents by digest; return the keys. Content that another writer added meanwhile is taken as it is."""
        columns = ("digest", "codec", "dtype", "n_raw_bytes", "n_bytes", "file_name")

        def add(missing: Sequence[str]) -> set[str]:
            rows = [(digest, *_columns(payloads[digest]).values()) for digest in missing]
            return insert_unless_present(self._connection, cast(Table, BlobRow.__table__), columns, rows)

        keys, added = added_and_held(self._connection, BlobRow, payloads, add)
        damaged = payloads.keys() - added - self.known(payloads).keys()
        self._restore({digest: payloads[digest] for digest in sorted(damaged)})
        self._add_parts({keys[digest]: payloads[digest] for digest in added})
        return keys

    def _restore(self, payloads: Mapping[str, Payload]) -> None:
        """Point rows whose bytes are gone or too few at new bytes of the same content."""
        for digest, payload in payloads.items():
            row = BlobRow.digest == digest
            query = select(BlobRow.id, BlobRow.file_name).where(row).with_for_update(key_share=True)  # others hold it
            pk, file_name = self._connection.execute(query).one()
            self._connection.execute(update(BlobRow).where(row).values(_columns(payload)))
            self._connection.execute(delete(BlobPartRow).where(BlobPartRow.blob_pk == pk))
            self._add_parts({pk: payload})
            if file_name is not None:
                self.replaced_files += self._nobodys([file_name])

    def add(self, payloads: Sequence[Payload]) -> list[int]:
        """Add bytes that are never shared; return the keys in their order. Costs at most three statements."""
        if not payloads:
            return []
        rows = list(map(_columns, payloads))
        if self._connection.dialect.name == "sqlite":  # RETURNING came late to SQLite
            insert_rows(
                self._connection, cast(Table, BlobRow.__table__), tuple(rows[0]), [tuple(r.values()) for r in rows]
            )
            last = self._connection.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
            keys = list(range(last - len(rows) + 1, last + 1))  # autoincrement, and nobody else can write meanwhile
        else:
            insert = sa.insert(BlobRow).returning(BlobRow.id, sort_by_parameter_order=True)
            keys = list(self._connection.execute(insert, rows).scalars())
        self._add_parts(dict(zip(keys, payloads, strict=True)))
        return keys

    def refer(self, rollout_pk: int, blob_pks: Iterable[int]) -> None:
        """Note that a rollout needs these blobs."""
        rows = [(rollout_pk, blob_pk) for blob_pk in sorted(set(blob_pks))]
        insert_rows(self._connection, BlobReferenceRow.__table__, ("rollout_pk", "blob_pk"), rows)  # type: ignore[arg-type]

    def delete_unused(self, pks: Iterable[int]) -> list[str]:
        """Delete those of the given blobs that no rollout needs; return the side files to remove after the commit.

        Those that another transaction holds stay, and a file that, in a damaged store, another row names as well.
        """
        files: list[str] = []
        for chunk in chunked(sorted(set(pks))):
            unused = ~exists().where(BlobReferenceRow.blob_pk == BlobRow.id)
            these = BlobRow.id.in_(unused_and_locked(self._connection, BlobRow, unused, chunk)), unused
            files += [name for (name,) in self._connection.execute(select(BlobRow.file_name).where(*these)) if name]
            self._connection.execute(delete(BlobRow).where(*these))
        return self._nobodys(files)

    def _nobodys(self, names: Sequence[str]) -> list[str]:
        referred = self.referred_files(names)
        return [name for name in names if name not in referred]

    def side_files(self) -> dict[str, int]:
        """Return the bytes of every side file that a row names, by name."""
        query = select(BlobRow.file_name, BlobRow.n_bytes).where(BlobRow.file_name.is_not(None))
        return {str(row[0]): row[1] for row in self._connection.execute(query.order_by(BlobRow.file_name))}

    def lost_files(self) -> list[str]:
        """Return the side files that a row names and that are not there, or of another size. Looks at every one."""
        files = self.side_files().items()
        return [name for name, n in files if self._directory is None or not self._directory.has(name, n)]

    def has_lost_a_name(self) -> bool:
        """Return whether there is a blob without bytes: its row may have named a side file."""
        parts = exists().where(BlobPartRow.blob_pk == BlobRow.id)
        query = select(BlobRow.id).where(BlobRow.file_name.is_(None), ~parts).limit(1)
        return self._connection.execute(query).first() is not None

    def doubled_files(self) -> dict[str, list[int]]:
        """Return the keys of blobs that name one side file, by the file: damage, since each has a file of its own."""
        name = BlobRow.file_name
        several = select(name).where(name.is_not(None)).group_by(name).having(func.count() > 1)
        found: dict[str, list[int]] = {}
        for file_name, pk in self._connection.execute(
            select(name, BlobRow.id).where(name.in_(several)).order_by(BlobRow.id)
        ):
            found.setdefault(str(file_name), []).append(pk)
        return found

    def referred_files(self, names: Sequence[str]) -> set[str]:
        """Return those of the given side files that a row names."""
        found: set[str] = set()
        for chunk in chunked(names):
            query = select(BlobRow.file_name).where(BlobRow.file_name.in_(chunk))
            found |= {name for name in self._connection.execute(query).scalars() if name is not None}
        return found

    def readers(self, pks: Sequence[int]) -> dict[int, Callable[[], bytes]]:
        """Return, by key, what reads a blob's stored bytes; to be called in this transaction, from any thread.

        Costs one query for each 500 keys now, and one for each blob that is in the database when it is read.

        Raises:
            BlobMissingError: one is gone.
        """
        rows = {row.id: row for row in self._rows(BlobRow.id, pks)}
        gone = [pk for pk in pks if pk not in rows]
        if gone:
            raise BlobMissingError(str(gone[0]))
        return {pk: partial(self._read, row) for pk, row in rows.items()}

    def read(self, pk: int) -> tuple[str, str, bytes]:
        """Return (codec, dtype, stored bytes) of one blob.

        Raises:
            BlobMissingError: it is gone.
            BlobCorruptError: there are more or fewer bytes than were stored.
        """
        for row in self._rows(BlobRow.id, [pk]):
            return row.codec, row.dtype, self._read(row)
        raise BlobMissingError(str(pk))

    def _read(self, row: Row[Any]) -> bytes:
        if row.file_name is not None:
            return self._stored([row])[row.id]
        with self._lock:  # a connection is one thread's at a time
            return self._stored([row])[row.id]

    def contents(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Return the decoded bytes of shared contents, as far as they are here. Costs two queries for each 500.

        Raises:
            BlobMissingError: a side file is gone.
            BlobCorruptError: stored bytes are damaged.
        """
        rows = self._rows(BlobRow.digest, digests)
        stored = self._stored(rows)
        return {
            row.digest: decode_for_reading(
                row.codec, row.dtype, (row.n_raw_bytes // dtype_of(row.dtype).itemsize,), stored.pop(row.id)
            ).tobytes()
            for row in rows
        }

    def _rows(self, column: Any, values: Sequence[Any]) -> list[Row[Any]]:
        rows: list[Row[Any]] = []
        for chunk in chunked(values):
            rows += self._connection.execute(select(BlobRow.__table__).where(column.in_(chunk)))
        return rows

    def _stored(self, rows: Sequence[Row[Any]]) -> dict[int, bytes]:
        """Return the stored bytes of blobs by key, from their side files and from the parts in the database."""
        wholes = {row.id: io.BytesIO() for row in rows if row.file_name is None}
        is_large = sum(row.n_bytes for row in rows if row.file_name is None) > _AT_ONCE_BYTES
        for chunk in chunked(list(wholes)):
            query = in_binary(select(BlobPartRow.blob_pk, BlobPartRow.data).where(BlobPartRow.blob_pk.in_(chunk)))
            query = query.order_by(BlobPartRow.blob_pk, BlobPartRow.part)
            if is_large:
                query = query.execution_options(yield_per=_AT_ONCE_BYTES // PART_BYTES)
            for pk, data in self._connection.execute(query):
                wholes[pk].write(data)
        stored = {pk: whole.getvalue() for pk, whole in wholes.items()}  # its own bytes, no copy of them
        del wholes
        for row in rows:
            if row.file_name is not None:
                if self._directory is None:
                    raise BlobMissingError(row.file_name)
                stored[row.id] = self._directory.read(row.file_name, row.n_bytes)
            if len(stored[row.id]) != row.n_bytes:
                raise BlobCorruptError(f"blob {row.id} has {len(stored[row.id])} bytes, not {row.n_bytes}")
        return stored

    def _add_parts(self, payloads: Mapping[int, Payload]) -> None:
        rows = [
            (pk, part, memoryview(payload.data)[start : start + PART_BYTES])
            for pk, payload in payloads.items()
            if payload.data is not None
            for part, start in enumerate(range(0, max(len(payload.data), 1), PART_BYTES))
        ]
        insert_rows(self._connection, BlobPartRow.__table__, ("blob_pk", "part", "data"), rows)  # type: ignore[arg-type]


class DocumentBlobs:
    """A ``BlobSource`` for documents: each content is read and decoded once.

    Args:
        repository: where the blobs are.
        documents: those that will be decoded; what they refer to is read now, together.
    """

    def __init__(self, repository: BlobRepository, documents: Iterable[str | None]) -> None:
        self._contents = repository.contents(sorted(digests_in(documents)))

    def get(self, name: str) -> bytes:
        """Return the content of this digest.

        Raises:
            BlobMissingError: the store does not hold it.
        """
        if name not in self._contents:
            raise BlobMissingError(name)
        return self._contents[name]


def digests_in(documents: Iterable[str | None]) -> set[str]:
    """Return the digests that documents may refer to: a superset, found without decoding them."""
    return {digest for text in documents if text and '"blob"' in text for digest in _IN_DOCUMENTS.findall(text)}


def _columns(payload: Payload) -> dict[str, object]:
    return {
        "codec": payload.codec,
        "dtype": payload.dtype,
        "n_raw_bytes": payload.n_raw_bytes,
        "n_bytes": payload.n_bytes,
        "file_name": payload.file_name,
    }
