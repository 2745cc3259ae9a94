"""Copying an SQLite database page by page, as one transaction sees it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection

from slime_store.database.sqlite import file_uri


def copy_pages(connection: Connection, target: Path) -> int:
    """Copy the whole database into an empty file and sync it; return its bytes.

    SQLite's backup interface, in one step inside the connection's transaction: the copy is what that transaction
    sees, whatever is committed meanwhile. (VACUUM INTO cannot run inside a transaction, so what else belongs to the
    same moment, the list of side files, could not be had with it.) Writers go on in write-ahead-log mode; with a
    rollback journal they wait until the copy is done.
    """
    source = connection.connection.driver_connection
    assert source is not None
    with closing(sqlite3.connect(file_uri(target, read_only=False), uri=True, isolation_level=None)) as copy:
        source.backup(copy)
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return target.stat().st_size
