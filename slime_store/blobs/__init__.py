"""Where large bytes live: in the database, or in a directory beside it."""

from slime_store.blobs.directory import BlobDirectory
from slime_store.blobs.held import head_of, is_held
from slime_store.blobs.payload import FILE_BYTES, MAX_BYTES, PART_BYTES, Payload, PayloadWriter, checksum_of
from slime_store.blobs.syncing import sync_directory

__all__ = [
    "FILE_BYTES",
    "MAX_BYTES",
    "PART_BYTES",
    "BlobDirectory",
    "Payload",
    "PayloadWriter",
    "checksum_of",
    "head_of",
    "is_held",
    "sync_directory",
]
