"""The spool: a small store of its own on local disk, for rollouts that the real store cannot take."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime_store.config import StoreConfig
from slime_store.plugins.guard import log
from slime_store.plugins.settings import PluginSettings
from slime_store.store import SampleStore

if TYPE_CHECKING:
    from slime_store.plugins.recorder import Storable


class Spool:
    """One spool file for each process, made when it is first needed. ``slime-store import FILE`` takes it in later.

    Args:
        settings: of the plug-in.
    """

    def __init__(self, settings: PluginSettings) -> None:
        name = "".join(c if (c.isascii() and c.isalnum()) or c in "-._" else "_" for c in settings.run)[:100]
        self._file_name = f"{name}.{_mark(settings.url)}.{os.getpid()}.db"
        self._directory = settings.spool_dir
        self.path: Path | None = None
        self.n_kept = 0
        self.lineage: dict[str, Any] | None = None
        self._run = settings.run
        self._store: SampleStore | None = None
        self._is_noted = False
        self._lock = threading.RLock()

    def keep(self, item: Storable) -> None:
        """Store something in the spool file."""
        with self._lock:
            if self._store is None:
                self._store = self._open()
            run = self._store.run(self._run)
            if self.lineage is not None and not self._is_noted:  # decides whether its rollouts may be adopted later
                run.recovery.begin_session(checkpoint_rollout_id=None, lineage=self.lineage)
                self._is_noted = True
            item.store(run)
            self.n_kept += 1
        log.error(
            "slime_store kept %s in %s; take it in with `slime-store --store URL import %s --run %s`",
            item,
            self.path,
            self.path,
            self._run,
        )

    def _open(self) -> SampleStore:
        if self._directory is None:
            directory = own_directory()
        else:
            directory = Path(self._directory)
            directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / self._file_name
        return SampleStore.open(self.path)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()


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
