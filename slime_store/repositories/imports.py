"""Imports: which files' content a run holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select

from slime_store.mapping.text import searchable
from slime_store.models import ImportRow, RolloutRow


@dataclass(frozen=True)
class ImportOrigin:
    """The file that a rollout is imported from.

    Attributes:
        digest: SHA-256 of its content.
        file_name: without its directory.
        nesting: "inferred" or "given".
        extras: document of what else it held at the top level.
    """

    digest: bytes
    file_name: str
    nesting: str
    extras: str


class ImportRepository:
    """Reads and writes the imports of one run.

    Args:
        connection: inside a transaction.
        run_pk: the run's key.
    """

    def __init__(self, connection: Connection, run_pk: int) -> None:
        self._connection = connection
        self._run_pk = run_pk

    def find(self, digest: bytes, kind: str, rollout_id: int) -> int | None:
        """Return the newest attempt at this rollout that holds this content, or None."""
        query = (
            select(RolloutRow.attempt)
            .join(ImportRow, ImportRow.rollout_pk == RolloutRow.id)
            .where(
                ImportRow.run_pk == self._run_pk,
                ImportRow.digest == digest,
                RolloutRow.kind == kind,
                RolloutRow.rollout_id == rollout_id,
            )
        )
        return self._connection.execute(query.order_by(RolloutRow.attempt.desc()).limit(1)).scalar()

    def add(self, rollout_pk: int, origin: ImportOrigin, now: datetime) -> None:
        """Add the origin of a rollout."""
        values = {
            "rollout_pk": rollout_pk,
            "run_pk": self._run_pk,
            "digest": origin.digest,
            "file_name": searchable(origin.file_name),
            "imported_at": now,
            "nesting": origin.nesting,
            "extras": origin.extras,
        }
        self._connection.execute(insert(ImportRow).values(values))

    def extras(self, rollout_pk: int) -> str | None:
        """Return the document of what else the rollout's file held; None if it was not imported."""
        return self._connection.execute(select(ImportRow.extras).where(ImportRow.rollout_pk == rollout_pk)).scalar()
