"""A store whose one file is all of it whenever nobody writes: it can be copied and moved by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from slime_store.config import StoreConfig
from slime_store.database import truncate_log
from slime_store.store.handle import StoreHandle
from slime_store.store.sample_store import SampleStore

_POLL_SECONDS = 0.05


def one_file_store(path: Path) -> SampleStore:
    """Return a store that is written without side files; see ``gather`` for its log. It is opened, or made, when used.

    Raises:
        InvalidUrlError: the path does not name a store.
    """
    return SampleStore(StoreHandle(replace(StoreConfig.parse(path), side_files=False)))


def gather(store: SampleStore, patience_seconds: float) -> bool:
    """Write the log into the file, and tell whether it is empty now; waits so long at most for others who read it."""
    deadline = time.monotonic() + patience_seconds
    while not truncate_log(store._handle.engine):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
