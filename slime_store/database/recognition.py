"""Telling databases from other files, without a lock being dropped: see ``blobs.held``."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from slime_store.blobs.held import SQLITE_HEADER, head_of, held_heads


def is_database(path: Path) -> bool:
    """Return whether a path is a file of SQLite, and so perhaps a store."""
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            return False
        held = list(held_heads(path, len(SQLITE_HEADER)))
        if held:
            return SQLITE_HEADER in held
        # SQLite is asked first: a thread may open it as a store right now, and SQLite knows of its own locks
        return _is_readable(path) or head_of(path, len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return False


def _is_readable(path: Path) -> bool:
    """Return whether SQLite takes a file for a database that holds anything; takes no locks and makes no files."""
    uri = f"file://{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return bool(connection.execute("PRAGMA page_count").fetchone()[0])
    except sqlite3.Error:
        return False
