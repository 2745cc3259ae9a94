"""The store: opening it, its runs, its size."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from slime_store.codecs.documents import is_clean
from slime_store.config import StoreConfig
from slime_store.database import reconnecting
from slime_store.errors import InvalidRunNameError
from slime_store.mapping.text import MAX_INDEXED
from slime_store.repositories.runs import RunRepository
from slime_store.repositories.stats import count_everything, database_bytes
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import encode_inline, run_info
from slime_store.store.run import Run
from slime_store.store.sessions import utc_now
from slime_store.store.side_files import warn_of_others
from slime_store.types import RunInfo, StoreStats
from slime_store.types.reports import BackupReport, VerifyReport

if TYPE_CHECKING:
    from sqlalchemy import URL


class SampleStore:
    """A sample store on SQLite or PostgreSQL.

    Usable from any number of threads and after fork; pickles as its address and reopens by it. Use it as a context
    manager, or call ``close``.
    """

    def __init__(self, handle: StoreHandle) -> None:
        """Wrap an open handle; use ``SampleStore.open``."""
        self._handle = handle

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str] | URL,
        *,
        read_only: bool = False,
        busy_timeout: float | None = None,
    ) -> SampleStore:
        """Open a store, creating or upgrading it first unless ``read_only``.

        Args:
            url: a path, ``sqlite:///PATH``, ``postgresql+psycopg://USER:PASSWORD@HOST/DATABASE``, or ":memory:".
            read_only: never create, migrate or write. Readers neither block nor slow a writer, but for an SQLite store
                with a rollback journal, as on a network file system: there a commit waits for the readers' queries
                that are under way, and they for it.
            busy_timeout: seconds to wait for another writer, or with a rollback journal for readers; default 60.

        Raises:
            InvalidUrlError: this does not name a store.
            StoreNotFoundError: there is none, and ``read_only``.
            SchemaError: it is newer, damaged, another program's, or outdated and ``read_only``; it was not touched.
            DatabaseError: the database cannot be reached.
        """
        config = StoreConfig.parse(url, read_only=read_only, busy_timeout=busy_timeout)
        handle = StoreHandle(config)
        try:
            handle.engine  # noqa: B018 - checks the schema
            if not read_only:
                warn_of_others(handle.directory)
        except BaseException:
            handle.close()
            raise
        return cls(handle)

    @property
    def url(self) -> str:
        """The address for people, without the password."""
        return self._handle.config.display_url

    @reconnecting
    def run(self, name: str, *, config: dict[str, Any] | None = None, create: bool = True) -> Run:
        """Return a run, adding it unless it is present.

        Args:
            name: unique in the store; that of a new run has at most 600 characters, which the indexes of every
                database take.
            config: what this start was configured with; any document. ``RunInfo.config`` is that of the first start;
                each session keeps its own.
            create: False: the run must be present.

        Raises:
            RunNotFoundError: it is not present, and ``create`` is False or the store is read-only.
            InvalidRunNameError: it is no text, empty, holds NUL or a lone surrogate, or is too long for a new run.
        """
        if not isinstance(name, str) or not name or not is_clean(name):
            given = name if isinstance(name, str) else repr(name)
            raise InvalidRunNameError(given, "that is text, not empty, without NUL and lone surrogates")
        handle = self._handle
        document = encode_inline(config, "config")
        with handle.reading() as connection:  # a run that is there needs no write, which might have to wait
            runs = RunRepository(connection)
            pk = runs.find(name) if create and not handle.config.read_only else runs.get(name).id
            lacks = pk is not None and document != "null" and not runs.has_config(pk)
        if pk is None and len(name) > MAX_INDEXED:
            raise InvalidRunNameError(name, f"it has {len(name):,} characters, and a new one at most {MAX_INDEXED}")
        if pk is None or (lacks and create and not handle.config.read_only):
            with handle.writing("add a run") as connection:
                pk = RunRepository(connection).ensure(name, document, utc_now())
        handle.sessions.note_config(pk, document)
        return Run(name, pk, handle)

    @reconnecting
    def runs(self) -> list[RunInfo]:
        """Return every run, oldest first."""
        with self._handle.reading() as connection:
            return [run_info(run) for run in RunRepository(connection).all()]

    @reconnecting
    def stats(self) -> StoreStats:
        """Return how much the store holds. Costs a few narrow scans; no array and no text is read."""
        with self._handle.reading() as connection:
            counts = count_everything(connection)
            size = database_bytes(connection)
        if self._handle.directory is not None:
            size += self._handle.directory.totals()[1]
        return StoreStats(url=self.url, size_bytes=size, **counts)

    # -- keeping it well -------------------------------------------------------------------------------

    def verify(
        self,
        *,
        fix: bool = False,
        grace_seconds: float = 3600.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check everything that the store holds, and say of all damage which samples it concerns.

        Looks at the schema, SQLite's pages and references, every rollout's rows against each other, every array,
        document, prompt, blob and side file. Costs about as much as loading every rollout once; memory stays at about
        two payloads and 64 MB. Others may read and write meanwhile. A read-only store can be verified.

        Args:
            fix: delete what nothing refers to (prompts, blobs, side files) and what crashed processes left; never
                anything of a rollout, and no rows while the database itself is damaged.
            grace_seconds: side files that no row names yet are left alone while they are younger than this, and what
                may be a store or a backup in the making, unless its process is known to be gone.
            progress: called with (rollouts done, rollouts) after each.

        Raises:
            ReadOnlyStoreError: with ``fix``, the store was opened with ``read_only=True``.
            DatabaseError: the database cannot be reached.
        """
        from slime_store.store.verification import verify

        return verify(self._handle, fix=fix, grace_seconds=grace_seconds, progress=progress)

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Make a backup: a store at ``path``, as this one is at one moment; open it to restore it.

        Others may go on writing. Side files are linked into ``PATH-blobs`` where both are on one file system, else
        copied. A PostgreSQL store becomes an SQLite file, which ``copy_store`` brings back. The backup has its name
        when all of it is on disk; before, there is nothing at ``path``. What killed backups have left in that directory
        is removed first. A store in memory can be backed up too. Memory stays at a few MB, of a PostgreSQL store at
        about two payloads and 16 MB.

        Raises:
            BackupError: there is something at ``path``, or it cannot be written.
            DatabaseError: the store cannot be read.
        """
        from slime_store.store.backup import backup

        return backup(self._handle, path)

    def vacuum(self) -> int:
        """Give back the space of what was deleted or pruned; return the bytes freed.

        SQLite rewrites the file, which takes as long as copying it, needs room for the copy, and lets no other writer
        in. PostgreSQL makes the space usable again, and returns what is at the end of its files. Side files of more
        than an hour that no row names are removed, unless another store uses their directory, or one that a row names
        is missing.

        Raises:
            ReadOnlyStoreError: the store was opened with ``read_only=True``.
            StoreBusyError: another writer did not finish in time.
            StoreFullError: there is no room for the copy; nothing was changed.
        """
        from slime_store.store.compaction import vacuum

        return vacuum(self._handle)

    def delete_run(self, name: str) -> int:
        """Delete a run with every rollout; return how many attempts were deleted.

        Prompts, images and tensors that other runs use stay. Rollouts go one transaction after the other, so others can
        write in between; a deletion that was interrupted is gone on with by calling this again. Pins do not hold it up.

        Raises:
            RunNotFoundError: there is none of this name.
        """
        from slime_store.store.deletion import delete_run

        return delete_run(self._handle, name)

    # -- closing ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything recorded in the background so far is stored.

        Raises:
            BackgroundRecordError: one of them failed and was not reported yet.
        """
        self._handle.check_may_wait()
        self._handle.background.flush()

    def close(self) -> None:
        """Finish background work and let go of every connection; closing twice is no error.

        Raises:
            BackgroundRecordError: a background record failed unreported; the store is closed all the same.
        """
        self._handle.close()

    def __enter__(self) -> SampleStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SampleStore({self.url!r}{', read_only=True' if self._handle.config.read_only else ''})"
