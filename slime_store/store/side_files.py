"""Side files that are to be removed, where nobody else may need them."""

from __future__ import annotations

import contextlib
import logging
import os

from slime_store.blobs import BlobDirectory
from slime_store.errors import BlobCorruptError, StoreError
from slime_store.store.handle import StoreHandle

_log = logging.getLogger("slime_store")

_told: set[tuple[int, str, str]] = set()
"""What this process (a forked one says it again) has said."""


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
    directory = handle.directory
    if directory is None or not names:
        return
    if (objection := directory.objection()) is not None:
        _tell_once("side files that nothing refers to stay, since they may be another store's: %s", objection)
        return
    with contextlib.suppress(OSError):  # on a full disk, say, where room is to be made
        directory.mark()
    for name in names:
        with contextlib.suppress(OSError, BlobCorruptError, TypeError):  # a name that never was one
            directory.remove(name)


def warn_of_others(directory: BlobDirectory | None) -> None:
    """Say when a store is opened whose side files lie where those of another one do."""
    if directory is not None and (others := directory.others()) is not None:
        _tell_once("no side file will be deleted, since it may be another store's: %s", others)


def _tell_once(message: str, objection: str) -> None:
    if (os.getpid(), message, objection) not in _told:
        _told.add((os.getpid(), message, objection))
        _log.warning(message, objection)
