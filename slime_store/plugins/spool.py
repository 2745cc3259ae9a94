"""The spool: a small store of its own on local disk, for rollouts that the real store cannot take."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime_store.config import StoreConfig
from slime_store.errors import (
    InvalidRunNameError,
    RolloutExistsError,
    StoreError,
    StoreFullError,
    UnsupportedValueError,
)
from slime_store.plugins.guard import log, warn
from slime_store.plugins.settings import PluginSettings
from slime_store.store import SampleStore
from slime_store.store.one_file import gather, one_file_store

if TYPE_CHECKING:
    from slime_store.plugins.recorder import Storable

PATIENCE_SECONDS = 5.0
"""How long the spool waits for somebody who reads its file, so that the file alone holds all of it."""

_OF_THE_PLACE = (StoreError, OSError)
"""Errors after which another file, or another directory, may do. After any other exception none will."""

_OF_WHAT_IS_KEPT = (UnsupportedValueError, RolloutExistsError, InvalidRunNameError)
"""Those of the store after which none will, either."""

_SUFFIXES = ("", "-wal", "-shm", "-journal")


class Spool:
    """What the store cannot take is kept in a file of this process's, made when it is first needed.

    ``slime-store import FILE`` takes it in later. That file is all there is to be copied, also while this process goes
    on, and after it was killed. When it has gone (taken in and removed, moved) or cannot be used, another one is begun;
    when the directory cannot be used, in the user's own one.

    Args:
        settings: of the plug-in.

    Attributes:
        path: the file that holds what was kept last.
        n_kept: how many things were kept.
        start: arguments of ``begin_session``: which checkpoint the process started from, and what its rollouts are
            generated with; they decide behind what they may be adopted later.
    """

    def __init__(self, settings: PluginSettings) -> None:
        name = "".join(c if (c.isascii() and c.isalnum()) or c in "-._" else "_" for c in settings.run)[:100]
        stem = f"{name}.{_mark(settings.url)}.{os.getpid()}"
        given = settings.spool_dir
        places = [own_directory] if given is None else [lambda: _made(Path(given)), own_directory]
        self._places = [_Place(directory, stem, settings.run) for directory in places]
        self.path: Path | None = None
        self.n_kept = 0
        self.start: dict[str, Any] | None = None
        self._run = settings.run
        self._lock = threading.RLock()

    def keep(self, item: Storable) -> None:
        """Store something in the spool file.

        Raises:
            StoreError, OSError: it cannot be stored, or not anywhere.
        """
        with self._lock:
            place = self._stored(item)
            self.path = place.path
            self.n_kept += 1
        log.error(
            "slime_store kept %s in %s; take it in with `slime-store --store URL import %s --run %s`",
            item,
            self.path if place.is_whole else f"{self.path} and {self.path.name}-wal beside it, which belongs to it",
            self.path,
            self._run,
        )

    def _stored(self, item: Storable) -> _Place:
        failure: Exception | None = None
        for place in self._places:
            try:
                place.store(item, self.start)
                return place
            except _OF_WHAT_IS_KEPT:
                raise
            except _OF_THE_PLACE as error:
                warn("a place to spool to cannot be used (%s: %s)", type(error).__name__, error)
                failure = failure or error
        assert failure is not None
        raise failure

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            for place in self._places:
                place.close()


class _Place:
    """A directory, and the file in it that is in use.

    Args:
        directory: makes the directory, if need be, and returns it.
        stem: begins the names of its files.
        run: name of the run.

    Attributes:
        path: the file.
        is_whole: whether it holds all that was stored in it; else its log holds the rest.
    """

    def __init__(self, directory: Callable[[], Path], stem: str, run: str) -> None:
        self.path = Path()
        self.is_whole = True
        self._directory, self._stem, self._run = directory, stem, run
        self._number = 0
        self._store: SampleStore | None = None
        self._noted: dict[str, Any] | None = None

    def store(self, item: Storable, start: dict[str, Any] | None) -> None:
        """Store something in the file, or in another one if that cannot be used."""
        self._store_somewhere(item, start)
        try:
            self.is_whole = gather(self._opened(), PATIENCE_SECONDS)
        except Exception as error:  # it is stored, all the same
            self.is_whole = False
            warn("the log of %s cannot be written into it (%s: %s)", self.path, type(error).__name__, error)

    def _store_somewhere(self, item: Storable, start: dict[str, Any] | None) -> None:
        try:
            self._store_here(item, start)
        except (StoreFullError, *_OF_WHAT_IS_KEPT):  # another file would fare no better
            raise
        except _OF_THE_PLACE as error:
            if not self._number:  # not even a directory
                raise
            warn(
                "%s cannot be used (%s: %s); another one is begun",
                self.path,
                type(error).__name__,
                error,
            )
            self.close()
            self._store_here(item, start)

    def _store_here(self, item: Storable, start: dict[str, Any] | None) -> None:
        run = self._opened().run(self._run)
        if start is not None and self._noted is not start:
            run.recovery.begin_session(**start)
            self._noted = start
        item.store(run)

    def _opened(self) -> SampleStore:
        if self._store is None:
            directory = self._directory()
            self.path = self._next_path(directory)
            self._store, self._noted = one_file_store(self.path), None
        return self._store

    def _next_path(self, directory: Path) -> Path:
        """Return a name that this process has not used: what it had open there may not be gone altogether.

        An earlier process may have had the same number. Its file is gone on with; but a log without its file is left.
        """
        while True:
            self._number += 1
            path = directory / f"{self._stem}{f'-{self._number}' if self._number > 1 else ''}.db"
            if path.exists() or not any(os.path.lexists(f"{path}{suffix}") for suffix in _SUFFIXES):
                return path

    def close(self) -> None:
        """Let go of the file; the next one has another name."""
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):  # of a file that is gone
                store.close()


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _mark(url: str) -> str:
    """Return a few letters that tell a store, and this host, from others: processes have the same numbers there."""
    config = StoreConfig.parse(url)
    where = (socket.gethostname(), str(config.path), *(() if config.is_sqlite else config.place))
    return hashlib.blake2b("\0".join(where).encode(errors="surrogateescape"), digest_size=4).hexdigest()


def own_directory() -> Path:
    """Return a directory under the system's temporary one that nobody else can write to or look into.

    It is the same one each time, unless somebody has put something of theirs in its place.
    """
    path = Path(tempfile.gettempdir()) / f"slime_store_spool-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
        return path
    return Path(tempfile.mkdtemp(prefix="slime_store_spool-"))
