"""Every error that slime_store raises on purpose: one tree, typed, picklable.

Each class passes its raw fields to ``super().__init__`` and makes its text in ``__str__``, so that it
survives pickling between processes (Ray actors), and each text says what, where, and the next step.
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of slime_store."""


# -- what was asked for is not there ------------------------------------------------------------


class StoreNotFoundError(StoreError, LookupError):
    """There is no store at this place, and the caller did not ask to create one."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"there is no store at {self.url}; open it without read_only=True to create it"


class RunNotFoundError(StoreError, LookupError):
    """The store holds no run of this name."""

    def __init__(self, run: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(run, known)
        self.run, self.known = run, known

    def __str__(self) -> str:
        known = f"it holds {', '.join(map(repr, self.known[:5]))}" if self.known else "it holds no run yet"
        return f"the store has no run {self.run!r}; {known}"


class RolloutNotFoundError(StoreError, LookupError):
    """The run holds no complete rollout with this id (or not this attempt of it)."""

    def __init__(
        self, run: str, kind: str, rollout_id: int, attempt: int | None = None, nearest: tuple[int, ...] = ()
    ) -> None:
        super().__init__(run, kind, rollout_id, attempt, nearest)
        self.run, self.kind, self.rollout_id = run, kind, rollout_id
        self.attempt, self.nearest = attempt, nearest

    def __str__(self) -> str:
        which = f"{self.kind} rollout {self.rollout_id}"
        if self.attempt is not None:
            which = f"attempt {self.attempt} of {which}"
        near = f"; nearest recorded: {', '.join(map(str, self.nearest))}" if self.nearest else ""
        return f"run {self.run!r} has no {which}{near}; see `run.rollouts(kind={self.kind!r})`"


class SampleNotFoundError(StoreError, LookupError):
    """The rollout holds no sample at this position."""

    def __init__(self, run: str, kind: str, rollout_id: int, position: int, n_samples: int) -> None:
        super().__init__(run, kind, rollout_id, position, n_samples)
        self.run, self.kind, self.rollout_id = run, kind, rollout_id
        self.position, self.n_samples = position, n_samples

    def __str__(self) -> str:
        held = f"they are 0 to {self.n_samples - 1}" if self.n_samples else "it has none"
        return f"{self.kind} rollout {self.rollout_id} of run {self.run!r} has no sample {self.position}; {held}"


class ArraysPrunedError(StoreError, LookupError):
    """The arrays of a rollout were deleted to save space; its scalars and texts are still there."""

    def __init__(
        self, run: str, kind: str, rollout_id: int, attempt: int, pruned_at: str | None = None, by: str | None = None
    ) -> None:
        super().__init__(run, kind, rollout_id, attempt, pruned_at, by)
        self.run, self.kind, self.rollout_id, self.attempt = run, kind, rollout_id, attempt
        self.pruned_at, self.by = pruned_at, by

    def __str__(self) -> str:
        return (
            f"the arrays of attempt {self.attempt} of {self.kind} rollout {self.rollout_id} of run {self.run!r} were "
            f"pruned at {self.pruned_at} by {self.by}; "
            'run.iter_samples(fields=["reward", "response", ...]) reads what is kept'
        )


# -- what was given cannot be stored ------------------------------------------------------------


class UnsupportedValueError(StoreError, ValueError):
    """A value cannot be kept exactly, so nothing was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"{self.path or 'value'}: {self.reason}; nothing was written. Remove or convert it, or record with "
            "strict=False to store a marked placeholder in its place"
        )


class InvalidOutputError(UnsupportedValueError, TypeError):
    """What was given is no rollout, eval or rollout id; recording it leniently would not help."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class RolloutExistsError(StoreError):
    """The rollout is already recorded, and the caller chose ``on_conflict="error"``."""

    def __init__(self, run: str, kind: str, rollout_id: int) -> None:
        super().__init__(run, kind, rollout_id)
        self.run, self.kind, self.rollout_id = run, kind, rollout_id

    def __str__(self) -> str:
        return (
            f"run {self.run!r} already has {self.kind} rollout {self.rollout_id}; "
            'record with on_conflict="new_attempt" or "replace"'
        )


class BatchError(StoreError, ValueError):
    """A rollout's samples make no batch for training."""

    def __init__(self, rollout: str, sample: int, reason: str) -> None:
        super().__init__(rollout, sample, reason)
        self.rollout, self.sample, self.reason = rollout, sample, reason

    def __str__(self) -> str:
        return f"{self.rollout}, sample {self.sample}: {self.reason}; `load_train` gives the samples as they are"


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


# -- files that come in ---------------------------------------------------------------------------


class InvalidDumpError(StoreError, ValueError):
    """A file is not a rollout dump that can be read: another format, damaged, or without what a dump holds."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class UntrustedPickleError(InvalidDumpError):
    """A file asks for a class or function that is not on the list of harmless ones; none of its code was run.

    Attributes:
        name: what it asks for, ``"module.name"``.
    """

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, name)
        self.name = name
        self.reason = (
            f"it refers to {name}, which is not on the list of harmless types, and was not opened; if you trust "
            "whoever made the file, read it with trust=True (`slime-store import --trust`), which lets it run any code"
        )


class ExportError(StoreError):
    """A file cannot be written; one that was there before is as it was."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot export to {self.path}: {self.reason}"


class AlreadyImportedError(StoreError):
    """The run already holds the content of this file."""

    def __init__(self, run: str, kind: str, rollout_id: int, attempt: int) -> None:
        super().__init__(run, kind, rollout_id, attempt)
        self.run, self.kind, self.rollout_id, self.attempt = run, kind, rollout_id, attempt

    def __str__(self) -> str:
        return (
            f"already imported as attempt {self.attempt} of {self.kind} rollout {self.rollout_id} of run {self.run!r}"
        )


# -- the database ------------------------------------------------------------------------------


class DatabaseError(StoreError):
    """The database refused or failed; the transaction was rolled back and the store stays usable."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


class StoreBusyError(DatabaseError):
    """Another process held the write lock longer than the busy timeout."""


class StoreFullError(DatabaseError):
    """The disk, the quota or the size limit is exhausted; nothing of this record was kept."""


class ConnectionFailedError(DatabaseError):
    """The database server cannot be reached, or the connection broke and came to nothing when tried again."""


class BackupError(StoreError):
    """A backup cannot be made; nothing was left behind."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot back up to {self.path}: {self.reason}"


class CopyError(StoreError):
    """A store cannot be copied to this place, or the copy is not like the original."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"cannot copy to {self.url}: {self.reason}"


class BackgroundRecordError(StoreError):
    """A record that ran in the background failed; raised once by the next call, ``flush`` or ``close``."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"recording {self.what} in the background failed and nothing of it was stored: {self.reason}"


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


class BlobMissingError(StoreError, LookupError):
    """A stored array or image that a sample refers to is gone."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"blob {self.name} is missing; see `store.verify()` for what is affected"


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


class SettingsError(StoreError, ValueError):
    """A setting of the plug-in is missing, unknown or makes no sense."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key, self.reason = key, reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"
