"""What is there is no store of a schema that this version can use, or is damaged."""

from __future__ import annotations

from slime_store.errors.base import StoreError


class SchemaError(StoreError):
    """The database is not a slime_store of a schema this version can use; it was not touched."""

    def __init__(self, url: str, detail: str = "") -> None:
        super().__init__(url, detail)
        self.url, self.detail = url, detail


class NewerSchemaError(SchemaError):
    """The store was written by a newer slime_store.

    Attributes:
        version: the newest slime_store that has written to it, as far as it says.
    """

    def __init__(self, url: str, detail: str = "", version: str | None = None) -> None:
        super().__init__(url, detail)
        self.args = (url, detail, version)
        self.version = version

    def __str__(self) -> str:
        needed = f" to {self.version} or later" if self.version else ""
        return (
            f"{self.url} was made by a newer slime_store (schema revision {self.detail!r} is unknown here); "
            f"upgrade the slime_store package{needed}"
        )


class OutdatedSchemaError(SchemaError):
    """The store needs a schema upgrade, which a read-only reader never does."""

    def __str__(self) -> str:
        return f"{self.url} has the older schema {self.detail!r}; open it once without read_only=True to upgrade it"


class ForeignDatabaseError(SchemaError):
    """The file or database belongs to something else."""

    def __str__(self) -> str:
        return f"{self.url} is not a slime_store: {self.detail}; choose another path, nothing was changed"


class DamagedStoreError(SchemaError):
    """The database file is damaged."""

    def __str__(self) -> str:
        return f"{self.url} is damaged: {self.detail}; restore a backup, nothing was changed"


class BlobCorruptError(StoreError, ValueError):
    """Stored bytes do not decode to what was recorded."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"stored bytes are damaged: {self.reason}; see `store.verify()` for what is affected"
