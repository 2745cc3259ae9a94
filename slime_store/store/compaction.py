"""Giving space back: free pages of the database, and side files that no row names."""

from __future__ import annotations

import contextlib

from slime_store.database import compact
from slime_store.repositories.stats import database_bytes
from slime_store.store.handle import StoreHandle
from slime_store.store.verification.files import GRACE_SECONDS, check_side_files, note_lost_names
from slime_store.store.verification.findings import Findings
from slime_store.store.verification.fixing import remove_unused_files


def vacuum(handle: StoreHandle) -> int:
    """Compact a store; see ``SampleStore.vacuum``."""
    handle.check_writable("vacuum a store")
    findings = Findings()
    note_lost_names(handle, findings)
    check_side_files(handle, findings, GRACE_SECONDS)
    freed = 0
    if handle.directory is not None:
        for name in findings.unused_files:
            with contextlib.suppress(LookupError):
                freed += handle.directory.size(name)
        remove_unused_files(handle, findings.unused_files)
    before = _size(handle)
    compact(handle.engine)
    return freed + before - _size(handle)


def _size(handle: StoreHandle) -> int:
    with handle.reading() as connection:
        return database_bytes(connection)
