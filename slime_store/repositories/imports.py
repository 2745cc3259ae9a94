"""Imports: which files' content a run holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, and_, func, insert, select
from sqlalchemy.orm import aliased

from slime_store.mapping.text import searchable
from slime_store.models import AdoptionRow, ImportRow, RolloutRow, SampleWeightVersionRow, SessionRow, WeightVersionRow
from slime_store.repositories.digests import RolloutDigests
from slime_store.repositories.histories import with_start
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


Start: TypeAlias = "tuple[str, int, datetime]"
"""Host, process and time: what tells a session from all others, in whatever store it is."""


class SessionOrigin(NamedTuple):
    """What a store says of a session, apart from keys: enough to find it in another store, or to add one like it.

    The checkpoint that it started from is said in ``client`` where it is added: what a run needs for resuming goes by
    where its own last session started, whenever something is imported.

    ``client``, ``config`` and ``lineage`` are documents.
    """

    host: str
    pid: int
    started_at: datetime
    client: str
    config: str
    lineage: str | None
    checkpoint_rollout_id: int | None


class Adoption(NamedTuple):
    """A session was handed a rollout that another one, or itself, recorded at a time."""

    session_pk: int
    rollout_id: int
    recorded_in: int
    started_at: datetime
    adopted_at: datetime


class _Begun(NamedTuple):
    """A session that may be of a process; ``is_named``: it is, since it names the process, and not its number only."""

    started_at: datetime
    pk: int
    lineage: str | None
    is_named: bool


_ORIGIN: tuple[Any, ...] = tuple(getattr(SessionRow, name) for name in SessionOrigin._fields)


def _process_of(client: str | None) -> Any:
    """Return what a session says of its process, apart from its number; None where it says nothing."""
    try:
        return json.loads(client or "null")["process"]
    except (ValueError, TypeError, LookupError, RecursionError):  # damaged, or of an earlier version
        return None


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

    def find_recording(self, session_pk: int, kind: str, rollout_id: int, started_at: datetime) -> int | None:
        """Return the newest attempt that is this very recording: begun at this moment by the process of a session.

        It is known by the process, since that has a session of its own in each store that it writes to.
        """
        named = aliased(SessionRow)
        query = (
            select(RolloutRow.attempt)
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .join(named, and_(named.host == SessionRow.host, named.pid == SessionRow.pid))
            .where(
                named.id == session_pk,
                RolloutRow.run_pk == self._run_pk,
                RolloutRow.kind == kind,
                RolloutRow.rollout_id == rollout_id,
                RolloutRow.started_at == started_at,
                RolloutRow.status == "complete",
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

    def nesting(self, rollout_pk: int) -> str | None:
        """Return whether the rollout's groups were inferred or given; None if it was not imported."""
        return self._connection.execute(select(ImportRow.nesting).where(ImportRow.rollout_pk == rollout_pk)).scalar()

    def sessions(self) -> dict[int, SessionOrigin]:
        """Return the run's sessions by key, oldest first."""
        query = select(SessionRow.id, *_ORIGIN).where(SessionRow.run_pk == self._run_pk).order_by(SessionRow.ordinal)
        return {row[0]: SessionOrigin(*row[1:]) for row in self._connection.execute(query)}

    def numbered_sessions(self) -> dict[int, SessionOrigin]:
        """Return the run's sessions by ordinal."""
        query = select(SessionRow.ordinal, *_ORIGIN).where(SessionRow.run_pk == self._run_pk)
        return {row[0]: SessionOrigin(*row[1:]) for row in self._connection.execute(query)}

    def lineage(self, session_pk: int) -> str | None:
        """Return the document of what a session's rollouts depend on, or None."""
        return self._connection.execute(select(SessionRow.lineage).where(SessionRow.id == session_pk)).scalar()

    def starts(self) -> set[Start]:
        """Return what tells the sessions of the whole store from others, whatever their run."""
        query = select(SessionRow.host, SessionRow.pid, SessionRow.started_at)
        return {(row[0], row[1], row[2]) for row in self._connection.execute(query)}

    def last_active(self) -> dict[int, datetime]:
        """Return when each session that did so last began a rollout or met a new weight version, by key."""
        queries: tuple[Any, ...] = (
            select(RolloutRow.session_pk, func.max(RolloutRow.started_at))
            .where(RolloutRow.run_pk == self._run_pk, RolloutRow.status == "complete")
            .group_by(RolloutRow.session_pk),
            select(WeightVersionRow.session_pk, func.max(WeightVersionRow.first_seen_at))
            .where(WeightVersionRow.run_pk == self._run_pk)
            .group_by(WeightVersionRow.session_pk),
        )
        last: dict[int, datetime] = {}
        for query in queries:
            for session_pk, at in self._connection.execute(query):
                last[session_pk] = max(at, last.get(session_pk, at))
        return last

    def generated_in(self, rollout_pk: int) -> dict[int, int]:
        """Return the session that generated a sample, by position, where it is not the one that recorded the rollout.

        Known of samples that name a weight version; the others have nothing that depends on it.
        """
        query = (
            select(SampleWeightVersionRow.position, WeightVersionRow.session_pk)
            .join(WeightVersionRow, WeightVersionRow.id == SampleWeightVersionRow.weight_version_pk)
            .join(RolloutRow, RolloutRow.id == SampleWeightVersionRow.rollout_pk)
            .where(RolloutRow.id == rollout_pk, WeightVersionRow.session_pk != RolloutRow.session_pk)
        )
        return {row[0]: row[1] for row in self._connection.execute(query)}

    def adoptions(self) -> list[Adoption]:
        """Return which sessions were handed which train rollouts of the run."""
        query = (
            select(
                AdoptionRow.session_pk,
                RolloutRow.rollout_id,
                RolloutRow.session_pk,
                RolloutRow.started_at,
                AdoptionRow.adopted_at,
            )
            .join(RolloutRow, RolloutRow.id == AdoptionRow.rollout_pk)
            .where(RolloutRow.run_pk == self._run_pk, RolloutRow.kind == "train")
        )
        return [Adoption(*row) for row in self._connection.execute(query)]

    def add_adoption(self, adoption: Adoption) -> None:
        """Note that a session was handed a rollout, if that is here."""
        query = select(RolloutRow.id).where(
            RolloutRow.run_pk == self._run_pk,
            RolloutRow.kind == "train",
            RolloutRow.status == "complete",
            RolloutRow.rollout_id == adoption.rollout_id,
            RolloutRow.session_pk == adoption.recorded_in,
            RolloutRow.started_at == adoption.started_at,
        )
        for rollout_pk in self._connection.scalars(query).all():
            resume = ResumeRepository(self._connection, self._run_pk)
            resume.adopt(adoption.session_pk, rollout_pk, adoption.adopted_at)

    def find_session(self, origin: SessionOrigin) -> int | None:
        """Return this very session, recorded in another store, if the run has it with the same lineage; else None.

        The other store may be a backup from before the lineage was noted.
        """
        return next(
            (
                each.pk
                for each in self._begun(origin)
                if each.started_at == origin.started_at and origin.lineage in (None, each.lineage)
            ),
            None,
        )

    def same_session(self, origin: SessionOrigin, when: datetime, others: set[Start]) -> int | None:
        """Return the session that the process of another store's session had in this run at a time, or None.

        That is this very session, else the one that the process began last by then, else the one that it began next:
        the store was out of reach until then. But none of ``others``, and none of another process: one that comes after
        another may have its number, and in a container its host name as well. Sessions of earlier versions do not say
        which process theirs was, so that one that began later is none of theirs. A clock that was set back makes what
        the session recorded no older than itself.
        """
        found = self.find_session(origin)
        if found is not None:
            return found
        begun = [each for each in self._begun(origin) if (origin.host, origin.pid, each.started_at) not in others]
        by_then = [each for each in begun if each.started_at <= max(when, origin.started_at)]
        chosen = by_then[-1:] or [each for each in begun if each.is_named][:1]
        return chosen[0].pk if chosen and chosen[0].lineage == origin.lineage else None

    def _begun(self, origin: SessionOrigin) -> list[_Begun]:
        """Return the sessions of a process in the order in which they began."""
        process = _process_of(origin.client)
        query = (
            select(SessionRow.started_at, SessionRow.id, SessionRow.lineage, SessionRow.client)
            .where(SessionRow.run_pk == self._run_pk, SessionRow.host == origin.host, SessionRow.pid == origin.pid)
            .order_by(SessionRow.started_at, SessionRow.ordinal)
        )
        begun = []
        for started_at, pk, lineage, client in self._connection.execute(query):
            known = _process_of(client)
            if process is None or known in (None, process):
                begun.append(_Begun(started_at, pk, lineage, process is not None and known == process))
        return begun

    def add_session(self, origin: SessionOrigin) -> int:
        """Add a session like that of another store, and return its key. The run must be locked.

        Where it started is said in its ``client`` alone, so that it is never taken for the one that is to be resumed.
        """
        key, _ = RunRepository(self._connection).add_session(
            self._run_pk,
            host=origin.host,
            pid=origin.pid,
            client=with_start(origin.client, origin.checkpoint_rollout_id),
            config=origin.config,
            now=origin.started_at,
        )
        resume = ResumeRepository(self._connection, self._run_pk)
        resume.describe_session(key, None, origin.lineage)
        return key
