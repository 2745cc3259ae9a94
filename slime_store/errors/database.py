"""The database refuses, fails, or cannot be reached."""

from __future__ import annotations

from slime_store.errors.base import StoreError


class DatabaseError(StoreError):
    """The database refused or failed; the transaction was rolled back and the store stays usable.

    Only after two it is not known: after a record's `CommitUnknownError`, and after a `ConnectionFailedError` of what
    comes to the same when it is done again, such as a pin, a checkpoint or deleting.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


class StoreBusyError(DatabaseError):
    """Another process held the write lock longer than the busy timeout."""


class TransactionAbortedError(StoreBusyError):
    """The server has ended a transaction for the sake of others, a deadlock's, and came to do so each time again."""


class StoreFullError(DatabaseError):
    """The disk, the quota or the size limit is exhausted; nothing of this record was kept."""


class ReadOvertakenError(DatabaseError):
    """A file that is read without locks, since its directory cannot be written to, was written to meanwhile."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "somebody began to write to the file while it was read without locks; read it again")
        self.args = (url,)  # what pickle makes it of again


class ConnectionFailedError(DatabaseError):
    """The database server cannot be reached, or the connection broke and came to nothing when tried again."""


class CommitUnknownError(ConnectionFailedError):
    """The answer to a record's COMMIT was lost with the connection, and what became of it could not be found out since.

    All of it is kept, or nothing. ``url`` and ``reason`` are of what failed last.
    """

    def __str__(self) -> str:
        return (
            f"{super().__str__()}; before that the answer to a COMMIT was lost, so it is not known whether what was "
            "recorded is kept: look for it, as with `run.rollouts(attempts=True)`, before it is recorded again"
        )


class BackgroundRecordError(StoreError):
    """A record that ran in the background failed; raised once by the next call, ``flush`` or ``close``.

    Nothing of it was stored, unless ``may_be_stored``: then it is not known, as for `CommitUnknownError`.
    """

    def __init__(self, what: str, reason: str, may_be_stored: bool = False) -> None:
        super().__init__(what, reason, may_be_stored)
        self.what, self.reason, self.may_be_stored = what, reason, may_be_stored

    def __str__(self) -> str:
        known = "" if self.may_be_stored else " and nothing of it was stored"
        return f"recording {self.what} in the background failed{known}: {self.reason}"
