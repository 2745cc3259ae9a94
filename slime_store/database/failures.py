"""Turns what the drivers raise into our own errors: typed, chained, without secrets and without parameters."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from slime_store.config import StoreConfig
from slime_store.errors import (
    ConnectionFailedError,
    DamagedStoreError,
    DatabaseError,
    ReadOnlyStoreError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreNotFoundError,
    TransactionAbortedError,
)

_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NEARLY_FULL_BYTES = 1 << 20

# By text: Python 3.10 has no SQLite error codes, and these words have not changed since SQLite 3.0.
_SQLITE_KINDS = (
    ("is locked", "busy"),
    ("database or disk is full", "full"),
    ("malformed", "damaged"),
    ("file is not a database", "damaged"),
    ("Could not decode to UTF-8", "damaged"),
    ("readonly database", "read_only"),
    ("unable to open database file", "missing"),
    ("disk I/O error", "io"),
)
_SQLSTATE_KINDS = {
    "53100": "full",  # disk_full
    "55P03": "busy",  # lock_not_available
    "40001": "aborted",  # serialization_failure
    "40P01": "aborted",  # deadlock_detected
    "XX001": "damaged",  # data_corrupted
    "XX002": "damaged",  # index_corrupted
    "25006": "read_only",  # read_only_sql_transaction
    "57P01": "connection",  # admin_shutdown: the server is stopped, or somebody ended this connection
    "57P02": "connection",  # crash_shutdown
    "57P03": "connection",  # cannot_connect_now: it is starting
    "57P05": "connection",  # idle_session_timeout
    "25P03": "connection",  # idle_in_transaction_session_timeout: this process was stopped for longer
    "25P04": "connection",  # transaction_timeout
}

_NO_TIME = ("Invalid isoformat string", "Couldn't parse datetime")
"""How SQLAlchemy and Python say that SQLite has no time where one must be."""

_CLASSES: dict[str, type[DatabaseError]] = {
    "busy": StoreBusyError,
    "aborted": TransactionAbortedError,
    "full": StoreFullError,
    "connection": ConnectionFailedError,
}


@contextmanager
def translated(config: StoreConfig) -> Iterator[None]:
    """Raise our own error, chained to the original, in place of what the database driver raises in the body."""
    try:
        yield
    except DBAPIError as error:
        raise translate(error.orig or error, config) from error
    except sqlite3.Error as error:  # the driver's own, from outside SQLAlchemy
        raise translate(error, config) from error
    except OSError as error:  # a side file of the same record
        raise translate_os_error(error, config) from error
    except UnicodeDecodeError as error:  # damaged text, also of SQLite's own messages about a damaged schema
        raise DamagedStoreError(config.display_url, f"text that is no UTF-8 ({error.reason})") from error
    except Exception as error:
        interrupt = error.__context__
        if isinstance(error, AssertionError) and interrupt is not None and not isinstance(interrupt, Exception):
            raise interrupt from None  # Ctrl-C inside a commit: SQLAlchemy's own asserts come on top
        if isinstance(error, ValueError) and str(error).startswith(_NO_TIME):
            raise DamagedStoreError(config.display_url, "a time that is none") from error
        if not config.is_sqlite and _is_psycopg(error):
            raise translate(error, config) from error
        raise


def translate(error: BaseException, config: StoreConfig) -> StoreError:
    """Return our error for one of a driver's."""
    reason = _reason(error, config)
    kind = _kind(error)
    if kind == "io":  # SQLite reports so that it cannot extend its shared memory, or that a file has reached a limit
        kind = "full" if _nearly_full(config) else "other"
    if kind == "missing" and config.path is not None and not config.path.exists():
        return StoreNotFoundError(config.display_url)
    if kind == "read_only" and config.read_only:
        return ReadOnlyStoreError("write")
    if kind == "damaged":
        return DamagedStoreError(config.display_url, reason)
    return _CLASSES.get(kind, DatabaseError)(config.display_url, reason)


def translate_os_error(error: OSError, config: StoreConfig, doing: str = "") -> DatabaseError:
    """Return our error for one that the operating system reported of a file of the store."""
    reason = error.strerror or str(error)
    kind = StoreFullError if error.errno in _FULL_ERRNOS else DatabaseError
    return kind(config.display_url, f"{doing}: {reason}" if doing else reason)


def _kind(error: BaseException) -> str:
    if isinstance(error, sqlite3.Error):
        text = str(error)
        return next((kind for words, kind in _SQLITE_KINDS if words in text), "other")
    state = getattr(error, "sqlstate", None)
    if state is None or state.startswith("08"):  # psycopg has no state for what happens to a connection
        if _is_a_misfit(error):
            return "damaged"
        return "connection" if _is_operational(error) else "other"
    return _SQLSTATE_KINDS.get(state, "other")


def _reason(error: BaseException, config: StoreConfig) -> str:
    lines = str(error).strip().splitlines()
    return config.without_secrets(lines[0] if lines else type(error).__name__)


def _nearly_full(config: StoreConfig) -> bool:
    if config.path is None:
        return False
    try:
        status = os.statvfs(config.path.parent)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < _NEARLY_FULL_BYTES or _near_a_limit(config.path)


def _near_a_limit(path: Path) -> bool:
    """Tell whether this process may make files (``ulimit -f``) not much larger than those of the store are."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return False
    sizes = [0]
    for suffix in ("", "-wal", "-journal"):
        with contextlib.suppress(OSError):
            sizes.append(os.path.getsize(f"{path}{suffix}"))
    return max(sizes) + _NEARLY_FULL_BYTES > limit


def _is_operational(error: BaseException) -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError)


def _is_a_misfit(error: BaseException) -> bool:
    """Tell whether psycopg cannot make a time of what the server sent: one before the year 1, 'infinity'."""
    import psycopg

    return isinstance(error, psycopg.DataError) and "timestamp too" in str(error)


def _is_psycopg(error: Exception) -> bool:
    import psycopg

    return isinstance(error, psycopg.Error)
