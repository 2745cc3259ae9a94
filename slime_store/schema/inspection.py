"""Looks at what is at a store's address before anything is written there.

A database file is never opened here but by SQLite: closing any other handle on it would drop all the locks that this
process holds on the file. The one exception is a file that SQLite itself has just refused and that is not open already.
"""

from __future__ import annotations

import contextlib
import json
import re
import stat
from pathlib import Path

from sqlalchemy import Engine, text

from slime_store.blobs import head_of
from slime_store.config import StoreConfig
from slime_store.database import engine_config, read
from slime_store.database.sqlite import APPLICATION_ID
from slime_store.errors import DamagedStoreError, ForeignDatabaseError, InvalidUrlError, SchemaError, StoreError

_RELEASE = re.compile(r"\d{1,9}(\.\d{1,9}){0,9}", re.ASCII)
_MAGIC = b"SQLite format 3\0"
_SMALLEST_BYTES = 512  # one page of the smallest size that SQLite has
_APPLICATION_ID_AT = slice(68, 72)
_SQLITE_TABLES = (
    r"SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"
)
_POSTGRESQL_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"


def check_path(config: StoreConfig, path: Path) -> None:
    """Refuse an existing path that cannot be a store by its kind and size.

    Raises:
        InvalidUrlError: a directory, a device, a pipe.
        DamagedStoreError: an empty file, or one of a few bytes; SQLite would take it for a new database.
        ForeignDatabaseError: a small file of something else.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InvalidUrlError(config.display_url, f"it is {what}")
    if status.st_size == 0:
        raise DamagedStoreError(config.display_url, "the file is empty (0 bytes); delete it if it never was a store")
    if status.st_size < _SMALLEST_BYTES:
        only = DamagedStoreError(config.display_url, f"the file has only {status.st_size} bytes")
        raise explain_refused_file(config, path, only)


def explain_refused_file(config: StoreConfig, path: Path, refusal: DamagedStoreError) -> SchemaError:
    """Return the error for a file that SQLite cannot read: a broken store, or something else altogether."""
    header = head_of(path, 100)
    is_ours = int.from_bytes(header[_APPLICATION_ID_AT], "big") == APPLICATION_ID
    if is_ours or header[: len(_MAGIC)] == _MAGIC[: len(header)]:
        return refusal
    return ForeignDatabaseError(config.display_url, "the file is not an SQLite database")


def newest_writer(engine: Engine) -> str | None:
    """Return the newest version of slime_store that has written to a store of an unknown schema, if it says so."""
    versions = set()
    with (
        contextlib.suppress(StoreError, ValueError, TypeError, AttributeError, RecursionError),
        read(engine) as connection,
    ):
        for client in connection.scalars(text("SELECT DISTINCT client FROM sessions")):
            versions.add(str(json.loads(client).get("slime_store")))
    known = [version for version in versions if _RELEASE.fullmatch(version)]
    return max(known, key=lambda version: [int(part) for part in version.split(".")], default=None)


def refuse_foreign(engine: Engine, version_table: str) -> None:
    """Refuse a database without a schema version of ours that belongs to another program.

    Raises:
        ForeignDatabaseError: it holds tables, or is marked as another program's.
    """
    display_url = engine_config(engine).display_url
    is_sqlite = engine.dialect.name == "sqlite"
    with read(engine) as connection:
        names = connection.scalars(text(_SQLITE_TABLES if is_sqlite else _POSTGRESQL_TABLES)).all()
        mark = connection.exec_driver_sql("PRAGMA application_id").scalar_one() if is_sqlite else 0
    tables = sorted(str(name) for name in names if name != version_table)
    if tables:
        shown = ", ".join(tables[:5]) + (", ..." if len(tables) > 5 else "")
        raise ForeignDatabaseError(display_url, f"it holds the tables of another program ({shown})")
    if mark not in (0, APPLICATION_ID):
        raise ForeignDatabaseError(display_url, f"it belongs to another program (application id {mark:#x})")
