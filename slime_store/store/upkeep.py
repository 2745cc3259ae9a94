"""What can be done with a store that need not be of this version: saying how it is, and upgrading it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, text

from slime_store.blobs import BlobDirectory
from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, filesystem_type, read
from slime_store.errors import (
    DamagedStoreError,
    ForeignDatabaseError,
    NewerSchemaError,
    OutdatedSchemaError,
    StoreError,
    StoreNotFoundError,
)
from slime_store.repositories.stats import database_bytes
from slime_store.schema import HEAD, ensure_schema, stored_revision
from slime_store.schema.migrator import count_rows
from slime_store.store.backup import backup_database, backup_name
from slime_store.types.reports import StoreStatus, UpgradeReport

if TYPE_CHECKING:
    from sqlalchemy import URL

_STATES: tuple[tuple[type[StoreError], str], ...] = (
    (OutdatedSchemaError, "outdated"),
    (NewerSchemaError, "newer"),
    (ForeignDatabaseError, "foreign"),
    (DamagedStoreError, "damaged"),
    (StoreNotFoundError, "missing"),
    (StoreError, "unreachable"),
)
_COUNTS = {
    "n_runs": "SELECT count(*) FROM runs",
    "n_rollouts": "SELECT count(*) FROM rollouts WHERE status = 'complete'",
    "n_samples": "SELECT sum(n_samples) FROM rollouts WHERE status = 'complete'",
}


def store_status(url: str | os.PathLike[str] | URL) -> StoreStatus:
    """Say how a store is, whatever its state: of an older or newer schema, damaged, or not there. Writes nothing.

    Raises:
        InvalidUrlError: this does not name a store.
    """
    config = StoreConfig.parse(url, read_only=True)
    facts: dict[str, Any] = {"state": "current", "detail": "", "revision": None}
    engine: Engine | None = None
    try:
        engine = create_store_engine(config)
        ensure_schema(engine, config)
    except StoreError as error:
        facts["state"] = next(state for kind, state in _STATES if isinstance(error, kind))
        facts["detail"] = str(error)
    if config.path is not None and config.path.exists():
        facts |= _files(config)
    if engine is not None and facts["state"] not in ("missing", "foreign", "unreachable"):
        facts |= _contents(engine)
    if engine is not None:
        engine.dispose()
    return StoreStatus(url=config.display_url, code_revision=HEAD, **facts)


def _files(config: StoreConfig) -> dict[str, Any]:
    assert config.path is not None
    directory = BlobDirectory.beside(config.path)
    n_files, file_bytes = directory.totals()
    log = f"{config.path}-wal"
    return {
        "size_bytes": os.path.getsize(config.path),
        "wal_bytes": os.path.getsize(log) if os.path.exists(log) else 0,
        "side_files": n_files,
        "side_file_bytes": file_bytes,
        "file_system": filesystem_type(config.path),
    }


def _contents(engine: Engine) -> dict[str, Any]:
    """Return what can be read; each question on its own, for one may fail where another does not."""
    facts: dict[str, Any] = {}
    with contextlib.suppress(StoreError):
        facts["revision"] = stored_revision(engine)
    for name, query in _COUNTS.items():
        with contextlib.suppress(StoreError), read(engine) as connection:
            facts[name] = int(connection.execute(text(query)).scalar() or 0)
    with contextlib.suppress(StoreError), read(engine) as connection:
        if engine.dialect.name == "sqlite":
            facts["journal_mode"] = str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())
        else:
            facts["size_bytes"] = database_bytes(connection)
    return facts


def upgrade_store(url: str | os.PathLike[str] | URL, *, backup: bool = True) -> UpgradeReport:
    """Bring a store to the newest schema, an SQLite store after a backup beside it (``NAME.schema-REVISION.backup``).

    All steps are one transaction: an upgrade that fails leaves the store as it was. Rows of every table are counted
    before and after, and references checked. A store that is up to date is left alone, without a backup.
    PostgreSQL is not backed up: ask ``pg_dump`` for that first.

    Raises:
        StoreNotFoundError: there is none.
        NewerSchemaError: a newer slime_store made it; it says which one is needed, where that is known.
        BackupError: the backup failed; nothing was upgraded.
        DatabaseError: the upgrade failed; the schema is as it was.
    """
    reading = StoreConfig.parse(url, read_only=True)
    engine = create_store_engine(reading)
    copy = None
    try:
        before = None
        try:
            ensure_schema(engine, reading)
            before = HEAD
        except OutdatedSchemaError as error:
            before = error.detail
            if backup and reading.path is not None:
                directory = BlobDirectory.beside(reading.path)
                copy = backup_database(engine, directory, backup_name(reading, before)).path
        with read(engine) as connection:
            n_rows = sum(count_rows(connection).values())
    finally:
        engine.dispose()
    config = StoreConfig.parse(url)
    engine = create_store_engine(config)
    try:
        ensure_schema(engine, config)
    finally:
        engine.dispose()
    return UpgradeReport(config.display_url, before, HEAD, copy, n_rows)
