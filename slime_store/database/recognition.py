"""Telling databases from other files, and from each other, without a lock being dropped: see ``blobs.held``."""

from __future__ import annotations

import contextlib
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
        return _asked(path, "page_count") > 0 or head_of(path, len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return False


def number_of(path: Path) -> int:
    """Return the number of the store in a file that nobody writes to; 0: it has none, or cannot be read."""
    return _asked(path, "user_version")


def _asked(path: Path, pragma: str) -> int:
    """Return what SQLite says of a file, 0 where it takes it for no database; takes no locks and makes no files."""
    uri = f"file://{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
        return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
    return 0
