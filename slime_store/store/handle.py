"""What a store and its runs share: the address, the engine, the side files, the sessions of this process."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine

from slime_store.blobs import BlobDirectory
from slime_store.config import StoreConfig
from slime_store.database import (
    Identity,
    check_only_name,
    check_place,
    closed_if_interrupted,
    create_store_engine,
    identity,
    members,
    read,
    tell_after_fork,
    truncate_log,
    write,
)
from slime_store.errors import (
    BackgroundRecordError,
    DatabaseError,
    ReadOnlyStoreError,
    StoreBusyError,
    StoreClosedError,
    StoreNotPicklableError,
)
from slime_store.repositories.blobs import BlobRepository
from slime_store.schema import check_same_tables, check_still_current, ensure_schema, tables_identity
from slime_store.store.background import BackgroundWriter
from slime_store.store.diagnosis import MISFITS, name_damage
from slime_store.store.operations import Operations
from slime_store.store.sessions import Sessions

if TYPE_CHECKING:
    from slime_store.store.journal import Journal

LOG_BYTES = 64 << 20
"""A write-ahead log longer than this is cut after a record, as soon as no reader needs it."""


class StoreHandle:
    """An open store. Thread-safe; usable after fork; pickles as its address and reopens on first use."""

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self._real = None if config.path is None else Path(os.path.realpath(config.path))
        self._directory: BlobDirectory | None = None
        self.background = BackgroundWriter()
        self._operations = Operations()
        self.journals: weakref.WeakSet[Journal] = weakref.WeakSet()
        self.sessions = Sessions(self._identity)
        self._engine: Engine | None = None
        self._file: tuple[int, int] | None = None
        self._tables: int | None = None
        self.n_reads = 0
        self._memory = object()
        self._closed = False
        self.after_fork()
        tell_after_fork(self)

    @property
    def engine(self) -> Engine:
        """The engine; on first use the schema is checked, and created or upgraded unless read-only.

        Raises:
            StoreClosedError: the store was closed.
            SchemaError: this is no store that this version can use.
        """
        if self._closed:
            raise StoreClosedError()
        if self._engine is not None:
            return self._engine
        with self._operations.under_way(), self._lock:
            return self._engine or self._opened()

    def _opened(self) -> Engine:
        engine = create_store_engine(self.config)
        try:
            number = ensure_schema(engine, self.config)
        except BaseException:
            engine.dispose()
            raise
        if self._engine is not None:  # a signal handler has opened the store meanwhile
            engine.dispose()
            return self._engine
        self._file = self._file_identity()
        if not self.config.is_sqlite:
            with read(engine) as connection:
                self._tables = tables_identity(connection)
        if self._real is not None and self.config.side_files:
            self._directory = BlobDirectory.beside(self._real, number)
        weakref.finalize(self, engine.dispose)  # nobody closes the store of a run that was unpickled
        self._engine = engine  # last: other threads take it without the lock, and compare the file
        return engine

    @property
    def directory(self) -> BlobDirectory | None:
        """The side files, if the store has a place for them; on first use it is opened, for its number is in it."""
        if self._directory is None and self._real is not None and self.config.side_files:
            self.engine  # noqa: B018 - opens the store
        return self._directory

    @closed_if_interrupted
    def reading(self) -> Iterator[Connection]:
        """A read transaction."""
        try:
            with self._operations.under_way(), read(self.engine) as connection:
                self.n_reads += 1
                self._check_same_file()
                if not self.config.is_sqlite:  # a file has its own identity
                    check_same_tables(connection, self.config, self._tables)
                yield connection
        except MISFITS as error:
            name_damage(self, error)
            raise

    @closed_if_interrupted
    def writing(self, operation: str) -> Iterator[Connection]:
        """A write transaction; ``operation`` names it in the error of a read-only store."""
        if self.config.read_only:
            raise ReadOnlyStoreError(operation)
        try:
            with self._operations.under_way(), write(self.engine) as connection:
                check_still_current(connection, self.config, self._tables)
                yield connection
                self._check_same_file()
                if self.config.path is not None:
                    check_only_name(self.config.path, self.config.display_url)
        except MISFITS as error:
            name_damage(self, error)
            raise

    def session(self, run: str, run_pk: int) -> int:
        """The key of this process's session of a run, which begins with the first call.

        Raises:
            StoreClosedError: the store was closed.
            RunNotFoundError: the run was deleted.
        """
        with self._operations.under_way():
            return self.sessions.ensure(run, run_pk, self.writing)

    def check_may_wait(self) -> None:
        """Refuse to wait for other threads, which may wait for what this one holds.

        Raises:
            StoreBusyError: this is a signal handler, and what it interrupted is a transaction of this store.
        """
        if self._operations.is_here():
            detail = "a signal handler waits for what was recorded, and has interrupted a transaction; wait after it"
            raise StoreBusyError(self.config.display_url, detail)

    def settle(self) -> None:
        """Wait until what was recorded and journalled in the background so far is written, or has failed.

        Not in a signal handler that has interrupted a transaction, which some of it may wait for.
        """
        if not self._operations.is_here():
            self.background.wait()
            for journal in members(self.journals):
                journal.flush()

    def check_writable(self, operation: str) -> None:
        """Refuse at once what a transaction would refuse later.

        Raises:
            ReadOnlyStoreError: the store was opened with ``read_only=True``.
            StoreClosedError: the store was closed.
        """
        if self.config.read_only:
            raise ReadOnlyStoreError(operation)
        if self._closed:
            raise StoreClosedError()

    def trim_log(self) -> None:
        """Cut a write-ahead log that a long reader has let grow, if it is gone now; costs a look at the file's size."""
        if self.config.path is not None and self._engine is not None:
            with contextlib.suppress(OSError):
                if os.path.getsize(f"{os.path.realpath(self.config.path)}-wal") > LOG_BYTES:
                    truncate_log(self._engine)

    def _identity(self) -> Hashable:
        """What tells the open store from others in this process, whatever the way to it: links, other spellings.

        Raises:
            StoreClosedError: the store was closed.
        """
        self.engine  # noqa: B018 - opens the store, if it is to be opened
        if self.config.is_memory:
            return self._memory
        return self._file if self.config.is_sqlite else self.config.place

    def _file_identity(self) -> Identity:
        return None if self.config.path is None else identity(self.config.path)

    def _check_same_file(self) -> None:
        """Refuse to go on with a file that was moved away or replaced: what is written to it would be lost."""
        if self._file_identity() != self._file:
            raise DatabaseError(self.config.display_url, "the file was moved, deleted or replaced while it was open")
        if self.config.path is not None and self._real is not None:
            check_place(self.config.path, self._real, self.config.display_url)

    def blobs(self, connection: Connection) -> BlobRepository:
        """The blob repository of a transaction."""
        return BlobRepository(connection, self.directory)

    def close(self) -> None:
        """Finish background work and journals, then let go of every connection. Closing twice is no error.

        A signal handler that interrupted a transaction of its own thread's closes the store when that has ended.

        Raises:
            BackgroundRecordError: a background record failed unreported; the store is closed all the same.
        """
        if self._closed:
            return
        if self._operations.is_here():
            self._operations.when_done(self._close_late)
            return
        try:
            for journal in members(self.journals):
                journal.close()
            self.background.close()
        except Exception:
            self._let_go()
            raise
        self._let_go()  # not after Ctrl-C: what waits is written when the process ends

    def _let_go(self) -> None:
        self._closed = True
        self.sessions.end()
        if self._engine is not None:
            self._engine.dispose()
            self._engine.pool.dispose()  # the new one: it keeps nothing of a thread that was about to connect

    def _close_late(self) -> None:
        with contextlib.suppress(BackgroundRecordError):  # the log has it; what ends now may be an exception itself
            self.close()

    def after_fork(self) -> None:
        """Take a lock of one's own: the parent's may be held by a thread that is not here."""
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        if self.config.is_memory:
            raise StoreNotPicklableError()
        return {"config": self.config}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"])  # type: ignore[misc]
