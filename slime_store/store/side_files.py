"""Side files that are to be removed."""

from __future__ import annotations

import contextlib

from slime_store.errors import BlobCorruptError, StoreError
from slime_store.store.handle import StoreHandle


def take_back(handle: StoreHandle, names: list[str]) -> None:
    """Remove the side files of a record that failed.

    An exception (an interrupt, say) can also strike after the commit, so the database is asked which files it names.
    Files that cannot be asked about are left: unreferenced files do no harm, and ``verify`` finds them.
    """
    if not names:
        return
    with contextlib.suppress(StoreError):
        with handle.reading() as connection:
            referred = handle.blobs(connection).referred_files(names)
        remove_files(handle, [name for name in names if name not in referred])


def remove_files(handle: StoreHandle, names: list[str]) -> None:
    """Remove side files that no row names any more; one that cannot be removed is left for ``verify`` to find."""
    for name in names:
        if handle.directory is not None:
            with contextlib.suppress(OSError, BlobCorruptError, TypeError):  # a name that never was one
                handle.directory.remove(name)
