"""Backups: a store of its own in one file and a directory, as it was at one moment, while others go on writing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from slime_store.blobs import BlobDirectory, sync_directory
from slime_store.config import StoreConfig, refuse_address
from slime_store.database import copy_pages, engine_config, number_of, publish, read, translated
from slime_store.errors import BackupError
from slime_store.repositories.blobs import BlobRepository
from slime_store.store.backup_drafts import backup_draft, remove_left_overs, unmark
from slime_store.store.copying import copy_snapshot
from slime_store.store.handle import StoreHandle
from slime_store.types.reports import BackupReport

_TRIES = 5
"""How often it is begun anew while rollouts are deleted whose side files were to be linked."""


def backup(handle: StoreHandle, path: str | os.PathLike[str]) -> BackupReport:
    """Back up an open store; see ``SampleStore.backup``."""
    if handle.config.is_sqlite:
        return backup_database(handle.engine, handle.directory, path)
    return _publish(path, lambda draft: copy_snapshot(handle, draft))


def backup_database(engine: Engine, directory: BlobDirectory | None, path: str | os.PathLike[str]) -> BackupReport:
    """Back up an SQLite store of any schema revision that has blobs.

    Raises:
        BackupError: the target exists, or cannot be written.
        DatabaseError: the store cannot be read.
    """
    return _publish(path, lambda draft: _copy(engine, directory, draft))


def _copy(engine: Engine, directory: BlobDirectory | None, draft: Path) -> tuple[str, ...]:
    """Fill a draft with the database and its side files; return the names of those that are lost."""
    config = engine_config(engine)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    copies = BlobDirectory.beside(draft)
    for _ in range(_TRIES):
        with read(engine) as connection:
            files = BlobRepository(connection, directory).side_files()
            # before the pages, which take longer: a rollout that is deleted meanwhile takes its files with it
            missing = [name for name, n in files.items() if directory is None or not directory.copy_to(copies, name, n)]
            with translated(config):
                copy_pages(connection, draft)
        if missing:
            with read(engine) as connection:
                lost = BlobRepository(connection, directory).referred_files(missing)
            if len(lost) < len(missing):
                continue
        for name in set(copies.names()) - files.keys():
            copies.remove(name)
        copies.sync()
        return tuple(missing)
    raise BackupError(str(draft), "rollouts are deleted faster than their files can be linked; try again")


def _publish(path: str | os.PathLike[str], fill: Callable[[Path], tuple[str, ...]]) -> BackupReport:
    """Fill a draft beside the target, then give both, directory and database, their names: all or nothing.

    What killed backups have left in that directory goes first: they may have had the same name.
    """
    refuse_address(path)
    target = Path(path).expanduser().absolute()
    directory = BlobDirectory.beside(target)
    remove_left_overs(target.parent)
    for existing in (target, directory.root, Path(f"{target}-wal"), Path(f"{target}-journal")):
        if os.path.lexists(existing):
            raise BackupError(str(target), f"{existing.name} exists already; choose another name, or remove it")
    if not target.parent.is_dir():
        raise BackupError(str(target), f"the directory {target.parent} does not exist")
    try:
        with backup_draft(target) as draft:
            missing = fill(draft)
            drafts = BlobDirectory.beside(draft, number_of(draft))
            size = draft.stat().st_size
            names = list(drafts.names())
            file_bytes = drafts.totals()[1]
            if names:
                drafts.mark(target)  # the file keeps its inode under the other name
                os.rename(drafts.root, directory.root)
            try:
                publish(draft, target)
            except BaseException:
                if names:
                    unmark(directory)
                    directory.give_back(drafts, names)
                raise
            unmark(directory)
            sync_directory(target.parent)
    except FileExistsError:
        raise BackupError(str(target), f"{target.name} exists already; choose another name, or remove it") from None
    except OSError as error:
        raise BackupError(str(target), error.strerror or str(error)) from error
    return BackupReport(str(target), size, len(names), file_bytes, missing)


def backup_name(config: StoreConfig, revision: str) -> Path:
    """Return a free name for the backup before an upgrade, beside the store."""
    assert config.path is not None
    remove_left_overs(config.path.parent)
    for number in range(1, 1000):
        suffix = "" if number == 1 else f".{number}"
        path = config.path.with_name(f"{config.path.name}.schema-{revision}.backup{suffix}")
        if not path.exists() and not BlobDirectory.beside(path).root.exists():
            return path
    raise BackupError(str(config.path), "there are a thousand backups already")
