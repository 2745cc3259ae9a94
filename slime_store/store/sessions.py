"""Sessions: one for each run that this process writes to."""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timezone

from sqlalchemy import Connection

from slime_store.codecs.documents.plain import plain_json
from slime_store.database import tell_after_fork
from slime_store.repositories.runs import RunRepository

_log = logging.getLogger("slime_store")

_FRAMEWORKS = ("slime", "miles", "torch", "sglang")


class Sessions:
    """The sessions of this process in one store, by run.

    Every handle to the store shares them, also one that was unpickled, until one of them is closed. A forked child
    opens its own.

    Args:
        store: what tells the store from others in this process.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._configs: dict[int, str] = {}

    def note_config(self, run_pk: int, config: str) -> None:
        """Note what this process's session of a run was started with, before it begins."""
        self._configs[run_pk] = config

    def ensure(self, run_pk: int, writing: Callable[[str], AbstractContextManager[Connection]]) -> int:
        """Return the key of this process's session of a run, adding its row on the first call.

        When the connection breaks meanwhile, the next call first looks whether the row was added after all.
        """
        known = (os.getpid(), self._store, run_pk)
        with _registry.lock:
            if known not in _registry.keys:
                host, started_at = socket.gethostname(), _registry.starting.setdefault(known, utc_now())
                with writing("start a session") as connection:
                    runs = RunRepository(connection)
                    runs.lock(run_pk)
                    key = runs.find_session(run_pk, host, os.getpid(), started_at)
                    if key is None:
                        config = self._configs.get(run_pk, "null")
                        key, _ = runs.add_session(
                            run_pk, host=host, pid=os.getpid(), client=_client(), config=config, now=started_at
                        )
                _registry.keys[known] = key
                del _registry.starting[known]
            return _registry.keys[known]

    def look_for_others(self, connection: Connection, run: str, run_pk: int, session_pk: int, newest: int) -> None:
        """Warn, once for each other session, that a session has begun after this process's, which goes on recording.

        So two processes write to the run at once: two trainings under one name, perhaps. Nothing is lost by that.
        """
        known = (os.getpid(), self._store, run_pk)
        if newest == session_pk or (*known, newest) in _registry.warned or _registry.keys.get(known) != session_pk:
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

    def end_run(self, run_pk: int) -> None:
        """End this process's session in a run that was deleted."""
        with _registry.lock:
            _registry.keys.pop((os.getpid(), self._store, run_pk), None)

    def end(self) -> None:
        """End this process's sessions in the store; writing again begins new ones."""
        with _registry.lock:
            for known in [known for known in _registry.keys if known[1] == self._store]:
                del _registry.keys[known]


class _Registry:
    """The sessions of this process, in every store."""

    def __init__(self) -> None:
        self.keys: dict[tuple[int, str, int], int] = {}
        self.starting: dict[tuple[int, str, int], datetime] = {}
        self.warned: set[tuple[int, str, int, int]] = set()
        self.lock = threading.Lock()
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Begin without sessions, and with a lock that no thread of the parent holds."""
        self.keys, self.starting = {}, {}
        self.lock = threading.Lock()


_registry = _Registry()


def utc_now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(timezone.utc)


def _client() -> str:
    """A document of the versions that write: of slime_store, Python and the frameworks that are loaded."""
    from slime_store import __version__

    versions = {"slime_store": __version__, "python": platform.python_version()}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return plain_json(versions) or "{}"
