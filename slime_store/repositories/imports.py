"""Imports: which files' content a run holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from slime_store.mapping.text import searchable
from slime_store.models import ImportRow, RolloutRow, SessionRow
from slime_store.repositories.digests import RolloutDigests
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.runs import RunRepository


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

    def add(self, rollout_pk: int, origin: ImportOrigin, now: datetime, digests: RolloutDigests) -> None:
        """Add the origin of a rollout; ``digests`` takes that of its row."""
        values = {
            "rollout_pk": rollout_pk,
            "run_pk": self._run_pk,
            "digest": origin.digest,
            "file_name": searchable(origin.file_name),
            "imported_at": now,
            "nesting": origin.nesting,
            "extras": origin.extras,
        }
        digests.take(ImportRow, tuple(values), [tuple(values.values())])
        self._connection.execute(insert(ImportRow).values(values))

    def extras(self, rollout_pk: int) -> str | None:
        """Return the document of what else the rollout's file held; None if it was not imported."""
        return self._connection.execute(select(ImportRow.extras).where(ImportRow.rollout_pk == rollout_pk)).scalar()

    def session(self, ordinal: int) -> Row[Any]:
        """Return what tells a session of this run from others, and what its rollouts depend on."""
        columns: tuple[Any, ...] = (
            SessionRow.host,
            SessionRow.pid,
            SessionRow.client,
            SessionRow.config,
            SessionRow.lineage,
        )
        query: Any = select(*columns, SessionRow.started_at, SessionRow.checkpoint_rollout_id)
        query = query.where(SessionRow.run_pk == self._run_pk, SessionRow.ordinal == ordinal)
        row: Row[Any] = self._connection.execute(query).one()
        return row

    def same_session(self, origin: Row[Any], when: datetime) -> int | None:
        """Return the session that the process of another store's session had in this run at a time, or None."""
        query = select(SessionRow.id, SessionRow.lineage).where(
            SessionRow.run_pk == self._run_pk,
            SessionRow.host == origin.host,
            SessionRow.pid == origin.pid,
            SessionRow.started_at <= when,
        )
        row = self._connection.execute(query.order_by(SessionRow.ordinal.desc()).limit(1)).first()
        return row.id if row is not None and row.lineage == origin.lineage else None

    def add_session(self, origin: Row[Any]) -> int:
        """Add a session like that of another store, and return its key. The run must be locked."""
        key, _ = RunRepository(self._connection).add_session(
            self._run_pk,
            host=origin.host,
            pid=origin.pid,
            client=origin.client,
            config=origin.config,
            now=origin.started_at,
        )
        resume = ResumeRepository(self._connection, self._run_pk)
        resume.describe_session(key, origin.checkpoint_rollout_id, origin.lineage)
        return key

    def is_made_anew(self, kind: str, rollout_id: int, session_pk: int, started_at: datetime) -> bool:
        """Return whether a session that started later than a given one has the same rollout."""
        query = (
            select(RolloutRow.id)
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .where(
                RolloutRow.run_pk == self._run_pk,
                RolloutRow.kind == kind,
                RolloutRow.rollout_id == rollout_id,
                RolloutRow.status == "complete",
                RolloutRow.session_pk != session_pk,
                SessionRow.started_at > started_at,
            )
        )
        return self._connection.execute(query.limit(1)).first() is not None
