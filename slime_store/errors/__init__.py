"""Every error that slime_store raises on purpose: one tree, typed, picklable.

Each class passes its raw fields to ``super().__init__`` and makes its text in ``__str__``, so that it
survives pickling between processes (Ray actors), and each text says what, where, and the next step.
"""

from __future__ import annotations

from slime_store.errors.base import StoreError
from slime_store.errors.database import (
    BackgroundRecordError,
    CommitUnknownError,
    ConnectionFailedError,
    DatabaseError,
    ReadOvertakenError,
    StoreBusyError,
    StoreFullError,
    TransactionAbortedError,
)
from slime_store.errors.files import (
    AlreadyImportedError,
    BackupError,
    CopyError,
    ExportError,
    InvalidDumpError,
    UntrustedPickleError,
)
from slime_store.errors.missing import (
    ArraysPrunedError,
    BlobMissingError,
    RolloutNotFoundError,
    RunNotFoundError,
    SampleNotFoundError,
    StoreNotFoundError,
)
from slime_store.errors.schema import (
    BlobCorruptError,
    DamagedStoreError,
    ForeignDatabaseError,
    NewerSchemaError,
    OutdatedSchemaError,
    SchemaError,
)
from slime_store.errors.usage import (
    InvalidUrlError,
    MissingPackageError,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreNotPicklableError,
)
from slime_store.errors.values import (
    BatchError,
    InvalidOutputError,
    InvalidRunNameError,
    RolloutExistsError,
    SettingsError,
    UnsupportedValueError,
)

__all__ = [
    "AlreadyImportedError",
    "ArraysPrunedError",
    "BackgroundRecordError",
    "BackupError",
    "BatchError",
    "BlobCorruptError",
    "BlobMissingError",
    "CommitUnknownError",
    "ConnectionFailedError",
    "CopyError",
    "DamagedStoreError",
    "DatabaseError",
    "ExportError",
    "ForeignDatabaseError",
    "InvalidDumpError",
    "InvalidOutputError",
    "InvalidRunNameError",
    "InvalidUrlError",
    "MissingPackageError",
    "NewerSchemaError",
    "OutdatedSchemaError",
    "ReadOnlyStoreError",
    "ReadOvertakenError",
    "RolloutExistsError",
    "RolloutNotFoundError",
    "RunNotFoundError",
    "SampleNotFoundError",
    "SchemaError",
    "SettingsError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreError",
    "StoreFullError",
    "StoreNotFoundError",
    "StoreNotPicklableError",
    "TransactionAbortedError",
    "UnsupportedValueError",
    "UntrustedPickleError",
]

for _name in __all__:  # where they are imported from, and what pickles name, whatever file they are in
    globals()[_name].__module__ = __name__
