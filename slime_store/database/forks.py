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

import _thread
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.pool import StaticPool

from slime_store.database.after_fork import members
from slime_store.database.interrupts import closed_if_interrupted

T = TypeVar("T")

FORK_WAIT_SECONDS = 30.0
"""How long a fork waits for the transactions of other threads before it goes on without them."""

_POLL_SECONDS = 0.002

_TRIES = 100

_FORKED_SECONDS = 0.2
"""When the fork's hooks, also those of others, have surely ended: an interrupt that comes in one of them is ignored."""

_log = logging.getLogger("slime_store")

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_interrupted: list[bool] = []  # Ctrl-C came while a fork was waiting
_abandoned: list[Any] = []  # pools of the parent: never closed by the child


class _Transaction:
    """A transaction that runs. It counts while its frame lives: no interrupt between two lines leaves it behind."""

    def __init__(self, thread: int) -> None:
        self.thread = thread


class _Gate:
    """Knows the threads that are inside a transaction.

    It has no lock, which a signal handler could find taken by what it interrupted: whoever begins says so and then
    looks for forks, whoever forks says so and then looks for transactions, so that one of the two sees the other. Who
    must wait looks again and again.
    """

    def __init__(self) -> None:
        self.active: weakref.WeakSet[_Transaction] = weakref.WeakSet()
        self.forking: set[int] = set()  # threads: several may fork at once, and the first to end opens for itself only

    @closed_if_interrupted
    def transaction(self) -> Iterator[None]:
        transaction = _Transaction(threading.get_ident())
        try:
            while not self._begin(transaction):
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            self.active.discard(transaction)

    def _begin(self, transaction: _Transaction) -> bool:
        self.active.add(transaction)
        if not self.forking:
            return True
        if any(each.thread == transaction.thread and each is not transaction for each in members(self.active)):
            return True
        self.active.discard(transaction)
        return False

    def close(self) -> bool:
        """Let no transaction begin and wait for those that run; tell whether all have ended in time."""
        thread, deadline = threading.get_ident(), time.monotonic() + FORK_WAIT_SECONDS
        self.forking.add(thread)
        while any(each.thread != thread for each in members(self.active)):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def open(self) -> None:
        self.forking.discard(threading.get_ident())


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
    embedded = [engine for engine in members(_engines) if engine.dialect.name == "sqlite"]
    if not embedded:
        return
    if not _uninterrupted(_gate.close, False):
        _log.warning(
            "this process forks while a transaction of another thread is still running after %g s: "
            "the child must not use the store that it is on",
            FORK_WAIT_SECONDS,
        )
    for engine in embedded:
        if not _in_memory(engine):
            _uninterrupted(engine.dispose, None)


def _uninterrupted(work: Callable[[], T], otherwise: T) -> T:
    """Do something to its end. What a signal handler raises meanwhile would end this hook, not the fork."""
    for _ in range(_TRIES):
        try:
            return work()
        except KeyboardInterrupt:
            _interrupted.append(True)
        except BaseException:
            _log.exception("a signal handler's exception is ignored, since the process is forking")
    return otherwise


def _interrupt_again() -> None:
    time.sleep(_FORKED_SECONDS)
    _thread.interrupt_main()


def _after_in_parent() -> None:
    _gate.open()
    if _interrupted:
        _interrupted.clear()
        _thread.start_new_thread(_interrupt_again, ())  # not here, where it would be ignored as well


def _after_in_child() -> None:
    global _gate
    _gate = _Gate()
    _interrupted.clear()
    for engine in members(_engines):
        if not _in_memory(engine):
            _abandoned.append(engine.pool)
            engine.dispose(close=False)


def _in_memory(engine: Engine) -> bool:
    return isinstance(engine.pool, StaticPool)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
