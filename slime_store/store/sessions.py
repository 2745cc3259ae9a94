"""Sessions: one for each run that this process writes to."""

from __future__ import annotations

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
from slime_store.repositories.runs import RunRepository
from slime_store.store.forks import tell_after_fork

_FRAMEWORKS = ("slime", "miles", "torch", "sglang")


class Sessions:
    """The sessions that this process opened, by run. A forked child opens its own."""

    def __init__(self) -> None:
        self._keys: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        tell_after_fork(self)

    def ensure(self, run_pk: int, writing: Callable[[str], AbstractContextManager[Connection]]) -> int:
        """Return the key of this process's session of a run, adding its row on the first call."""
        process = (os.getpid(), run_pk)
        with self._lock:
            if process not in self._keys:
                with writing("start a session") as connection:
                    runs = RunRepository(connection)
                    runs.lock(run_pk)
                    key, _ = runs.add_session(
                        run_pk, host=socket.gethostname(), pid=os.getpid(), client=_client(), now=utc_now()
                    )
                self._keys[process] = key
            return self._keys[process]

    def after_fork(self) -> None:
        """Take a lock of one's own: the parent's may be held by a thread that is not here."""
        self._lock = threading.Lock()


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
