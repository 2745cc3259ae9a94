"""Runs, and the sessions that write to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, cast

from sqlalchemy import Connection, Row, Table, delete, func, insert, select

from slime_store.errors import RunNotFoundError
from slime_store.models import RolloutRow, RunRow, SessionRow
from slime_store.repositories.digests import update_row, with_digest
from slime_store.repositories.inserts import insert_unless_present

TABLE = cast(Table, RunRow.__table__)


@dataclass(frozen=True)
class StoredRun:
    """A run's row; ``config`` is a document."""

    id: int
    name: str
    config: str
    created_at: datetime
    n_rollouts: int


@dataclass(frozen=True)
class LockedRun:
    """What is true of a run while it is locked.

    Attributes:
        name: its name.
        newest_session: the key of its newest session, None if it has none.
        session_started_at: when the session that was asked for began; None: there is none of that key in this run.
    """

    name: str
    newest_session: int | None
    session_started_at: datetime | None


class RunRepository:
    """Reads and writes runs and sessions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, name: str) -> int | None:
        """Return the run's key, or None."""
        return self._connection.execute(select(RunRow.id).where(RunRow.name == name)).scalar()

    def ensure(self, name: str, config: str, now: datetime) -> int:
        """Return the run's key, adding the run unless it is present. The first config that is given stays."""
        values = with_digest(RunRow, {"name": name, "config": config, "created_at": now})
        insert_unless_present(self._connection, TABLE, tuple(values), [tuple(values.values())])
        pk = self.find(name)
        assert pk is not None
        if config != "null" and not self.has_config(pk):
            update_row(self._connection, RunRow, (RunRow.id == pk, RunRow.config == "null"), {"config": config})
        return pk

    def has_config(self, pk: int) -> bool:
        """Return whether the run was ever given a config."""
        return self._connection.execute(select(RunRow.config).where(RunRow.id == pk)).scalar() != "null"

    def delete(self, pk: int) -> None:
        """Delete a run whose rollouts are gone, with its sessions and weight versions."""
        self._connection.execute(delete(RunRow).where(RunRow.id == pk))

    def lock(self, pk: int, session_pk: int = 0) -> LockedRun | None:
        """Let no other writer of this run in until the transaction ends (SQLite has one writer anyway).

        Returns:
            What tells whether it is still the run, and the session, that it was; no statement of its own. None: the
            run is gone.
        """
        newest = select(func.max(SessionRow.id)).where(SessionRow.run_pk == pk).scalar_subquery()
        started = select(SessionRow.started_at).where(SessionRow.id == session_pk, SessionRow.run_pk == pk)
        query = select(RunRow.name, newest, started.scalar_subquery())
        query = query.where(RunRow.id == pk).with_for_update(of=RunRow)
        row = self._connection.execute(query).first()
        return None if row is None else LockedRun(*row)

    def session(self, pk: int) -> Any:
        """Return who a session is: its ordinal, host, pid and when it started."""
        columns = SessionRow.ordinal, SessionRow.host, SessionRow.pid, SessionRow.started_at
        return self._connection.execute(select(*columns).where(SessionRow.id == pk)).one()

    def find_session(self, run_pk: int, host: str, pid: int, started_at: datetime) -> int | None:
        """Return the key of the session that a process began at this time, or None."""
        same = SessionRow.run_pk == run_pk, SessionRow.host == host, SessionRow.pid == pid
        query = select(SessionRow.id).where(*same, SessionRow.started_at == started_at)
        return self._connection.execute(query).scalar()

    def has_session(self, pk: int, run_pk: int, pid: int, started_at: datetime) -> bool:
        """Return whether a session is there, of this run and process, and from this time."""
        same = SessionRow.id == pk, SessionRow.run_pk == run_pk, SessionRow.pid == pid
        return self._connection.execute(select(SessionRow.started_at).where(*same)).scalar() == started_at

    def newest_rollout(self) -> int:
        """Return a key that no rollout or journalled group of a locked run exceeds which is there now."""
        return self._connection.execute(select(func.max(RolloutRow.id))).scalar() or 0

    def get(self, name: str) -> StoredRun:
        """Return a run.

        Raises:
            RunNotFoundError: there is none of this name.
        """
        found = self._select(RunRow.name == name)
        if not found:
            self.refuse_deleted(name)
        return found[0]

    def refuse_deleted(self, name: str) -> NoReturn:
        """Refuse to go on with a run that is no longer there.

        Raises:
            RunNotFoundError: also when there is a new run of that name: it is another one.
        """
        names = self._connection.execute(select(RunRow.name).order_by(RunRow.id.desc()).limit(6)).scalars().all()
        raise RunNotFoundError(name, tuple(names))

    def all(self) -> list[StoredRun]:
        """Return every run, oldest first. Counts each rollout once, whatever its attempts."""
        return self._select()

    def sessions(self, pk: int) -> Sequence[Row[Any]]:
        """Return the run's sessions, oldest first, each with the number of rollouts it completed."""
        n_rollouts = (
            select(func.count())
            .where(RolloutRow.session_pk == SessionRow.id, RolloutRow.status == "complete")
            .scalar_subquery()
        )
        query = select(
            SessionRow.ordinal.label("session"),
            SessionRow.host,
            SessionRow.pid,
            SessionRow.started_at,
            n_rollouts.label("n_rollouts"),
            SessionRow.checkpoint_rollout_id,
            SessionRow.config,
        )
        return self._connection.execute(query.where(SessionRow.run_pk == pk).order_by(SessionRow.ordinal)).all()

    def _select(self, *where: object) -> list[StoredRun]:
        distinct = (
            select(RolloutRow.run_pk, RolloutRow.kind, RolloutRow.rollout_id)
            .where(RolloutRow.status == "complete")
            .distinct()
            .subquery()
        )
        n_rollouts = select(func.count()).where(distinct.c.run_pk == RunRow.id).scalar_subquery()
        query = select(RunRow.id, RunRow.name, RunRow.config, RunRow.created_at, n_rollouts)
        rows = self._connection.execute(query.where(*where).order_by(RunRow.id))  # type: ignore[arg-type]
        return [StoredRun(*row) for row in rows]

    def add_session(
        self, run_pk: int, *, host: str, pid: int, client: str, config: str, now: datetime
    ) -> tuple[int, int]:
        """Add a session and return (key, ordinal). The run must be locked."""
        last = select(func.max(SessionRow.ordinal)).where(SessionRow.run_pk == run_pk)
        ordinal = (self._connection.execute(last).scalar() or 0) + 1
        values = {
            "run_pk": run_pk,
            "ordinal": ordinal,
            "host": host,
            "pid": pid,
            "client": client,
            "config": config,
            "started_at": now,
        }
        key = self._connection.execute(insert(SessionRow).values(with_digest(SessionRow, values))).inserted_primary_key
        assert key is not None
        return int(key[0]), ordinal
