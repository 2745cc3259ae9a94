"""Blobs: rows that say where bytes are, and the parts of those that are in the database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection, delete, exists, select

from slime_store.blobs import PART_BYTES, BlobDirectory, Payload
from slime_store.codecs.arrays import decode_array, dtype_of
from slime_store.database import chunked, insert_rows
from slime_store.errors import BlobCorruptError, BlobMissingError
from slime_store.models import BlobPartRow, BlobReferenceRow, BlobRow
from slime_store.repositories.inserts import insert_unless_present

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

    def known(self, digests: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return (key, stored bytes) of those contents that are in the store."""
        found: dict[str, tuple[int, int]] = {}
        for chunk in chunked(sorted(set(digests))):
            query = select(BlobRow.digest, BlobRow.id, BlobRow.n_bytes).where(BlobRow.digest.in_(chunk))
            found |= {str(row[0]): (row[1], row[2]) for row in self._connection.execute(query)}
        return found

    def add_shared(self, payloads: Mapping[str, Payload]) -> dict[str, int]:
        """Add contents by digest; return the keys. Content that another writer added meanwhile is taken as it is."""
        rows = [{"digest": digest} | _columns(payloads[digest]) for digest in sorted(payloads)]
        added = insert_unless_present(self._connection, BlobRow.__table__, rows, "digest")
        keys = {digest: pk for digest, (pk, _) in self.known(payloads).items()}
        self._add_parts({keys[digest]: payloads[digest] for digest in added})
        for digest, payload in payloads.items():
            if digest not in added and payload.file_name is not None and self._directory is not None:
                self._directory.remove(payload.file_name)  # another writer brought the same content meanwhile
        return keys

    def add(self, payload: Payload) -> int:
        """Add bytes that are never shared; return the key."""
        key = self._connection.execute(sa.insert(BlobRow).values(_columns(payload))).inserted_primary_key
        assert key is not None
        self._add_parts({int(key[0]): payload})
        return int(key[0])

    def refer(self, rollout_pk: int, blob_pks: Iterable[int]) -> None:
        """Note that a rollout needs these blobs."""
        rows = [(rollout_pk, blob_pk) for blob_pk in sorted(set(blob_pks))]
        insert_rows(self._connection, BlobReferenceRow.__table__, ("rollout_pk", "blob_pk"), rows)  # type: ignore[arg-type]

    def delete_unused(self, pks: Iterable[int]) -> list[str]:
        """Delete those of the given blobs that no rollout needs; return the side files to remove after the commit."""
        files: list[str] = []
        for chunk in chunked(sorted(set(pks))):
            unused = BlobRow.id.in_(chunk), ~exists().where(BlobReferenceRow.blob_pk == BlobRow.id)
            files += [name for (name,) in self._connection.execute(select(BlobRow.file_name).where(*unused)) if name]
            self._connection.execute(delete(BlobRow).where(*unused))
        return files

    def referred_files(self, names: Sequence[str]) -> set[str]:
        """Return those of the given side files that a row names."""
        found: set[str] = set()
        for chunk in chunked(names):
            query = select(BlobRow.file_name).where(BlobRow.file_name.in_(chunk))
            found |= {name for name in self._connection.execute(query).scalars() if name is not None}
        return found

    def read(self, pk: int) -> tuple[str, str, bytes]:
        """Return (codec, dtype, stored bytes) of a blob.

        Raises:
            BlobMissingError: it is gone.
        """
        query = select(BlobRow.codec, BlobRow.dtype, BlobRow.file_name, BlobRow.n_bytes).where(BlobRow.id == pk)
        row = self._connection.execute(query).one_or_none()
        if row is None:
            raise BlobMissingError(str(pk))
        codec, dtype, file_name, n_bytes = row
        data = self._stored(pk, file_name)
        if len(data) != n_bytes:
            raise BlobCorruptError(f"blob {pk} has {len(data)} bytes, not {n_bytes}")
        return codec, dtype, data

    def content(self, digest: str) -> bytes:
        """Return the decoded bytes of shared content.

        Raises:
            BlobMissingError: the store does not hold it.
            BlobCorruptError: its stored bytes are damaged.
        """
        row = self._connection.execute(
            select(BlobRow.id, BlobRow.n_raw_bytes).where(BlobRow.digest == digest)
        ).one_or_none()
        if row is None:
            raise BlobMissingError(digest)
        codec, dtype, data = self.read(row[0])
        return decode_array(codec, dtype, (row[1] // dtype_of(dtype).itemsize,), data).tobytes()

    def _stored(self, pk: int, file_name: str | None) -> bytes:
        if file_name is not None:
            if self._directory is None:
                raise BlobMissingError(file_name)
            return self._directory.read(file_name)
        query = select(BlobPartRow.data).where(BlobPartRow.blob_pk == pk).order_by(BlobPartRow.part)
        return b"".join(self._connection.execute(query).scalars())

    def _add_parts(self, payloads: Mapping[int, Payload]) -> None:
        rows = [
            (pk, part, payload.data[start : start + PART_BYTES])
            for pk, payload in payloads.items()
            if payload.data is not None
            for part, start in enumerate(range(0, max(len(payload.data), 1), PART_BYTES))
        ]
        insert_rows(self._connection, BlobPartRow.__table__, ("blob_pk", "part", "data"), rows)  # type: ignore[arg-type]


class DocumentBlobs:
    """A ``BlobSource`` for the documents of one load: each content is read and decoded once.

    Costs one query for each distinct content.
    """

    def __init__(self, repository: BlobRepository) -> None:
        self._repository = repository
        self._read: dict[str, bytes] = {}

    def get(self, name: str) -> bytes:
        """Return the content of this digest."""
        if name not in self._read:
            self._read[name] = self._repository.content(name)
        return self._read[name]


def digests_in(documents: Sequence[str | None]) -> set[str]:
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
