"""The spool: a small store of its own on local disk, for rollouts that the real store cannot take."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        directory = settings.spool_dir or os.path.join(tempfile.gettempdir(), "slime_store_spool")
        name = "".join(c if (c.isascii() and c.isalnum()) or c in "-._" else "_" for c in settings.run)[:100]
        self.path = Path(directory) / f"{name}.{os.getpid()}.db"
        self.n_kept = 0
        self.lineage: dict[str, Any] | None = None
        self._run = settings.run
        self._store: SampleStore | None = None
        self._is_noted = False
        self._lock = threading.Lock()

    def keep(self, item: Storable) -> None:
        """Store something in the spool file."""
        with self._lock:
            if self._store is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._store = SampleStore.open(self.path)
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

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()
