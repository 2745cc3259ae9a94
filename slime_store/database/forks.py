"""Fork safety: a child process never uses a connection of its parent.

SQLite keeps its file locks in process-wide tables that ``fork`` copies while the locks themselves stay with the
parent: even a *new* connection of the child then believes it holds locks that it does not. Reproduced with SQLite
3.40: the parent has one idle connection and forks, the child opens its own and commits, the parent closes its
connection and so deletes the write-ahead log beneath the child; what the child commits next is lost. So before a fork
the parent closes its idle connections and waits for the running transactions of its other threads; afterwards the
child starts with a pool of its own. A PostgreSQL connection is simply left to the parent, whose transactions hold no
fork up.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.pool import StaticPool

FORK_WAIT_SECONDS = 30.0
"""How long a fork waits for the transactions of other threads before it goes on without them."""

_log = logging.getLogger("slime_store")

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_abandoned: list[Any] = []  # pools of the parent: never closed by the child


class _Transaction:
    """A transaction that runs. It counts while its frame lives: no interrupt between two lines leaves it behind."""

    def __init__(self, thread: int) -> None:
        self.thread = thread


class _Gate:
    """Knows the threads that are inside a transaction."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.active: weakref.WeakSet[_Transaction] = weakref.WeakSet()
        self.forking = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        transaction = _Transaction(threading.get_ident())
        try:
            with self.changed:
                if not any(each.thread == transaction.thread for each in self.active):
                    self.changed.wait_for(lambda: not self.forking)
                self.active.add(transaction)
            yield
        finally:
            with self.changed:
                self.active.discard(transaction)
                self.changed.notify_all()

    def close(self) -> bool:
        """Let no transaction begin and wait for those that run; tell whether all have ended in time."""
        thread, deadline = threading.get_ident(), time.monotonic() + FORK_WAIT_SECONDS
        with self.changed:
            self.forking = True
            while any(each.thread != thread for each in self.active):
                if time.monotonic() > deadline:
                    return False
                self.changed.wait(0.05)  # who was interrupted may not say that it has ended
        return True

    def open(self) -> None:
        with self.changed:
            self.forking = False
            self.changed.notify_all()


_gate = _Gate()


def guarded_transaction(engine: Engine) -> AbstractContextManager[None]:
    """Keep a fork in another thread waiting while the body runs, if it uses SQLite; a few microseconds."""
    return _gate.transaction() if engine.dialect.name == "sqlite" else nullcontext()


def make_fork_safe(engine: Engine) -> None:
    """Have the engine's connections left behind at a fork; the engine stays collectable.

    An in-memory database is copied by the fork with the rest of the memory, and so is its one connection.
    """
    _engines.add(engine)


def _before() -> None:
    embedded = [engine for engine in list(_engines) if engine.dialect.name == "sqlite"]
    if not embedded:
        return
    if not _gate.close():
        _log.warning(
            "this process forks while a transaction of another thread is still running after %g s: "
            "the child must not use the store that it is on",
            FORK_WAIT_SECONDS,
        )
    for engine in embedded:
        if not _in_memory(engine):
            engine.dispose()


def _after_in_parent() -> None:
    if _gate.forking:
        _gate.open()


def _after_in_child() -> None:
    global _gate
    _gate = _Gate()
    for engine in list(_engines):
        if not _in_memory(engine):
            _abandoned.append(engine.pool)
            engine.dispose(close=False)


def _in_memory(engine: Engine) -> bool:
    return isinstance(engine.pool, StaticPool)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
