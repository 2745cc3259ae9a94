"""Digests of rows, taken in the transaction that writes the rows.

What a digest covers is in ``models/coverage.py``, how it is encoded in ``codecs/canonical.py``. ``verify`` takes them
again, of the rows that it reads: ``repositories/stored_digests.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, select, update

from slime_store.codecs.canonical import digest_values
from slime_store.database import insert_rows
from slime_store.models import RolloutDigestRow, SampleRow
from slime_store.models.coverage import ARRAYS_VERSION, IN_ITSELF, OF_ROLLOUT, ROW_DIGEST

Key: TypeAlias = "tuple[Any, ...]"
"""Primary key of a row, but for the rollout's."""


class RolloutDigests:
    """Takes the digests of one rollout's rows while they are written, and adds them in the end."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[Key, bytes]]] = {}
        self._samples: list[bytes] = []

    def take(
        self,
        model: Any,
        columns: Sequence[str],
        rows: Iterable[tuple[Any, ...]],
        checksums: Sequence[bytes] | None = None,
    ) -> None:
        """Take the digests of rows that are given as tuples in the order of ``columns``; more may follow.

        Args:
            model: of the rows.
            columns: names.
            rows: any number.
            checksums: those of array packs.
        """
        table: Table = model.__table__
        covered = [columns.index(name) for name in OF_ROLLOUT[table.name]]
        keys = [columns.index(name) for name in key_columns(table)]
        taken = self._taken.setdefault(table.name, [])
        for number, row in enumerate(rows):
            values = [row[at] for at in covered]
            digest = digest_values(values) if checksums is None else array_digest(values, checksums[number])
            taken.append((tuple([row[at] for at in keys]), digest))

    def take_sample(self, values: Sequence[Any]) -> None:
        """Take the digest of the next sample, of ``sample_values``."""
        self._samples.append(digest_values(values))

    def store(self, connection: Connection, rollout_pk: int) -> None:
        """Add the digests. Costs one statement."""
        digests = {SampleRow.__tablename__: self._samples}
        digests |= {name: [digest for _, digest in sorted(taken)] for name, taken in self._taken.items()}
        rows = [(rollout_pk, subject, b"".join(each)) for subject, each in digests.items() if each]
        table: Table = RolloutDigestRow.__table__  # type: ignore[assignment]
        insert_rows(connection, table, ("rollout_pk", "subject", "digests"), rows)


def array_digest(values: Sequence[Any], checksum: bytes) -> bytes:
    """Return the digest of the row of an array pack, of its covered columns and the checksum of its bytes."""
    return digest_values([*values, checksum], ARRAYS_VERSION)


def key_columns(table: Table) -> list[str]:
    """Return the names of a table's primary key, but for the rollout's."""
    return [column.name for column in table.primary_key.columns if column.name not in ("rollout_pk", "id")]


def sample_values(
    row: Sequence[Any],
    text: Sequence[Any] | None,
    documents: Sequence[Any] | None,
    rewards: Sequence[Sequence[Any]],
    versions: Sequence[Sequence[Any]],
) -> list[Any]:
    """Return what the digest of a sample covers, in one list that leaves no doubt which value is which.

    Args:
        row: columns of ``samples``, the prompt's digest in place of its key.
        text: label and response; None: it has no row.
        documents: metadata and extra; None: it has no row.
        rewards: (depth, key, value) of the numbers of a dict reward, in the order of the key.
        versions: (run_position, weight_version_pk, n_turns) in order.
    """
    values = list(row)
    for part in (text, documents):
        values.append(part is not None)
        values += part or ()
    for rows in (rewards, versions):
        values.append(len(rows))
        for each in rows:
            values += each
    return values


def row_digest(table: str, values: Mapping[str, Any]) -> bytes:
    """Return the digest of a row of one of the small tables; columns that are not given are NULL."""
    return digest_values([values.get(name) for name in IN_ITSELF[table]])


def with_digest(model: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a new row of one of the small tables, its digest among them."""
    return {**values, ROW_DIGEST: row_digest(model.__tablename__, values)}


def update_row(
    connection: Connection, model: Any, condition: Sequence[ColumnElement[bool]], values: Mapping[str, Any]
) -> None:
    """Change a row of one of the small tables, if it is there, and its digest with it.

    A row without a digest stays so, and one that is not what its digest says keeps it: changing a row must not make its
    damage pass for what was recorded.
    """
    table: Table = model.__table__
    query = select(table).where(*condition).with_for_update(key_share=True)
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return
    changed = dict(values)
    if row[ROW_DIGEST] is not None and row[ROW_DIGEST] == row_digest(table.name, dict(row)):
        changed[ROW_DIGEST] = row_digest(table.name, {**row, **values})
    connection.execute(update(table).where(*condition).values(changed))
