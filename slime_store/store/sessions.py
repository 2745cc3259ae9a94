"""Sessions: one for each run that this process writes to."""

from __future__ import annotations

import json
import logging
import os
import platform
import socket
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeAlias

from sqlalchemy import Connection

from slime_store.database import tell_after_fork
from slime_store.errors import StoreClosedError
from slime_store.repositories.runs import RunRepository

_log = logging.getLogger("slime_store")

_FRAMEWORKS = ("slime", "miles", "torch", "sglang")

_Known: TypeAlias = "tuple[int, Hashable, int]"
"""Process, store and run."""

Writing: TypeAlias = "Callable[[str], AbstractContextManager[Connection]]"


class Sessions:
    """One handle's part in the sessions of this process in its store, by run.

    Every handle to the store shares them, also one that was unpickled. A handle takes part from when it first writes to
    the run until it is closed; with the last one that takes part, the session ends. So reading handles have no part in
    it. One that was dropped without being closed ends nothing and holds up nothing. A forked child opens its own.

    Args:
        store: returns what tells the open store from others in this process.
    """

    def __init__(self, store: Callable[[], Hashable]) -> None:
        self._store = store
        self._configs: dict[int, str] = {}
        self._is_ended = False

    def note_config(self, run_pk: int, config: str) -> None:
        """Note what this process's session of a run was started with, before it begins."""
        self._configs[run_pk] = config

    def ensure(self, run: str, run_pk: int, writing: Writing) -> int:
        """Return the key of this process's session of a run, adding its row on the first call.

        When the connection breaks meanwhile, the next call first looks whether the row was added after all.

        Raises:
            StoreClosedError: the handle was closed.
            RunNotFoundError: the run was deleted.
        """
        known = self._known(run_pk)
        with _registry.lock_of(known):  # others of this process wait for the same session only
            if self._is_ended:
                raise StoreClosedError()
            session = _registry.sessions.get(known)
            if session is None or self not in session.handles:
                with writing("start a session") as connection:
                    session = self._joined(connection, run, run_pk, session, known)
                with _registry.lock:
                    if self._is_ended:  # by a signal handler in this very thread
                        raise StoreClosedError()
                    _registry.sessions[known] = session
                    _registry.starting.pop(known, None)
                    session.handles.add(self)
            return session.key

    def _joined(
        self, connection: Connection, run: str, run_pk: int, session: _Session | None, known: _Known
    ) -> _Session:
        """Return the session if the store really holds it, else a new one.

        What told the store from others may have been that of one which is gone: a file is deleted and another made, a
        database is dropped and made anew.
        """
        runs = RunRepository(connection)
        if runs.lock(run_pk) is None:
            runs.refuse_deleted(run)
        if session is not None and runs.has_session(session.key, run_pk, os.getpid(), session.started_at):
            return session
        host, started_at = socket.gethostname(), _registry.starting.setdefault(known, utc_now())
        key = runs.find_session(run_pk, host, os.getpid(), started_at)
        if key is None:
            config = self._configs.get(run_pk, "null")
            key, _ = runs.add_session(
                run_pk, host=host, pid=os.getpid(), client=_client(), config=config, now=started_at
            )
        return _Session(key, started_at, runs.newest_rollout())

    def _known(self, run_pk: int) -> _Known:
        return os.getpid(), self._store(), run_pk

    def look_for_others(self, connection: Connection, run: str, run_pk: int, session_pk: int, newest: int) -> None:
        """Warn, once for each other session, that a session has begun after this process's, which goes on recording.

        So two processes write to the run at once: two trainings under one name, perhaps. Nothing is lost by that.
        """
        known = self._known(run_pk)
        session = _registry.sessions.get(known)
        if newest == session_pk or (*known, newest) in _registry.warned or session is None or session.key != session_pk:
            return
        _registry.warned.add((*known, newest))
        runs = RunRepository(connection)
        own, other = runs.session(session_pk), runs.session(newest)
        _log.warning(
            "run %r is written by two processes at once: by this one, session %d, and by session %d (process %d on %s, "
            "since %s). What both record is kept, each rollout under its own session and attempt; "
            "if these are two trainings, give each its own run",
            *(run, own.ordinal, other.ordinal, other.pid, other.host, other.started_at.isoformat(" ", "seconds")),
        )

    def expect(self, run_pk: int, session_pks: list[int]) -> None:
        """Do not warn of these sessions: they are those of earlier processes, added when this one's had begun."""
        _registry.warned.update((*self._known(run_pk), session_pk) for session_pk in session_pks)

    def is_same(self, run_pk: int, session_pk: int, started_at: datetime | None) -> bool:
        """Tell whether a session that the store has is the one of that key that this process knows, if it does."""
        session = _registry.sessions.get(self._known(run_pk))
        if session is None or session.key != session_pk:
            return started_at is not None
        return session.started_at == started_at

    def newest_before(self, run_pk: int, session_pk: int) -> int:
        """Return a key that rollouts and journalled groups exceed which came after this process's session began.

        0 for a session that is not this process's, or has ended.
        """
        session = _registry.sessions.get(self._known(run_pk))
        return session.newest_before if session is not None and session.key == session_pk else 0

    def end_run(self, run_pk: int) -> None:
        """End this process's session in a run that was deleted, or whose training goes back."""
        _registry.sessions.pop(self._known(run_pk), None)

    def end(self) -> None:
        """Take part no longer, for good; end the sessions in which no other handle takes part."""
        with _registry.lock:
            self._is_ended = True
            for known, session in list(_registry.sessions.items()):
                if self in session.handles:
                    session.handles.discard(self)
                    if not session.handles:
                        del _registry.sessions[known]


@dataclass(frozen=True)
class _Session:
    """A session of this process, the newest rollout before it, and the handles that take part and are still there."""

    key: int
    started_at: datetime
    newest_before: int
    handles: weakref.WeakSet[Sessions] = field(default_factory=weakref.WeakSet)


class _Registry:
    """The sessions of this process, in every store."""

    def __init__(self) -> None:
        self.warned: set[tuple[int, Hashable, int, int]] = set()
        self.after_fork()
        tell_after_fork(self)

    def lock_of(self, known: _Known) -> AbstractContextManager[bool]:
        """Return the lock of a session that starts; a signal handler may come back to it in the same thread."""
        with self.lock:
            return self.locks.setdefault(known, threading.RLock())

    def after_fork(self) -> None:
        """Begin without sessions, with locks that no thread of the parent holds, and as another process."""
        self.sessions: dict[_Known, _Session] = {}
        self.starting: dict[_Known, datetime] = {}
        self.locks: dict[_Known, AbstractContextManager[bool]] = {}
        self.lock = threading.RLock()
        self.process = uuid.uuid4().hex


_registry = _Registry()


def utc_now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(timezone.utc)


def _client() -> str:
    """A document of the versions that write, slime_store's, Python's and the loaded frameworks', and of the process.

    In containers, host and process number may be those of a process that was killed.
    """
    from slime_store import __version__

    versions = {"slime_store": __version__, "python": platform.python_version(), "process": _registry.process}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return json.dumps(versions, separators=(",", ":"))  # ASCII: a version may be any text
