"""The store cannot be used in this way, or not from here."""

from __future__ import annotations

from slime_store.errors.base import StoreError


class ReadOnlyStoreError(StoreError):
    """A write was asked of a store that was opened with ``read_only=True``."""

    def __init__(self, operation: str) -> None:
        super().__init__(operation)
        self.operation = operation

    def __str__(self) -> str:
        return f"cannot {self.operation}: the store was opened with read_only=True"


class StoreClosedError(StoreError):
    """The store was used after ``close()``."""

    def __str__(self) -> str:
        return "the store is closed; open it again with SampleStore.open(...)"


class StoreNotPicklableError(StoreError, TypeError):
    """An in-memory store cannot cross a process border."""

    def __str__(self) -> str:
        return "an in-memory store lives in one process and cannot be pickled; use a file or PostgreSQL"


class MissingPackageError(StoreError, ImportError):
    """An optional package that this needs cannot be imported."""

    def __init__(self, package: str, extra: str, reason: str) -> None:
        super().__init__(package, extra, reason)
        self.package, self.extra, self.reason = package, extra, reason

    def __str__(self) -> str:
        return f"{self.package} cannot be imported ({self.reason}); pip install 'slime-store[{self.extra}]'"


class InvalidUrlError(StoreError, ValueError):
    """The path or URL does not name a store."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"{self.url!r} is not a store: {self.reason}; use a path, sqlite:///PATH or postgresql+psycopg://HOST/DB"
