"""Compressed bytes on their way into the store, in memory or already in a side file."""

from __future__ import annotations

from dataclasses import dataclass

from slime_store.blobs.directory import BlobDirectory

_CHECKSUM_BYTES = 4

FILE_BYTES = 768 * 1024
"""Payloads of at least this many stored bytes go to side files where there is a directory.

SQLite writes large values page by page into its log and again into the file; docs/design.md has the measurement.
"""

PART_BYTES = 512 * 1024
"""Blobs in the database are cut into parts of this size: no value comes near SQLite's or PostgreSQL's limit of 1 GB."""

MAX_BYTES = PART_BYTES * (2**15 - 2)
"""Most bytes of a blob in the database, 16 GB: the number of a part has 16 bits, one of them a sign."""


@dataclass(frozen=True)
class Payload:
    """Encoded bytes and what it takes to decode them.

    Attributes:
        codec: id of the codec.
        dtype: stored dtype, as ``codecs.arrays`` names it.
        n_raw_bytes: bytes before the codec.
        n_bytes: stored bytes.
        data: the bytes, or None when they are in a side file.
        file_name: the side file, or None.
        checksum: of the content, as the bytes have it.
    """

    codec: str
    dtype: str
    n_raw_bytes: int
    n_bytes: int
    data: bytes | None
    file_name: str | None
    checksum: bytes


def checksum_of(data: bytes) -> bytes:
    """Return the checksum of the content that a zstd frame ends with (codecs/frames.py); else the last bytes."""
    return bytes(data[-_CHECKSUM_BYTES:])


class PayloadWriter:
    """Decides where payloads go and remembers the files it wrote, which a failed record takes back.

    Args:
        directory: the side files, or None where there are none (PostgreSQL, in-memory).
    """

    def __init__(self, directory: BlobDirectory | None) -> None:
        self._directory = directory
        self._written: dict[str, int] = {}

    def keep(self, codec: str, dtype: str, n_raw_bytes: int, data: bytes) -> Payload:
        """Return the payload, written to a side file first when it is large."""
        file_name = None
        if self._directory is not None and len(data) >= FILE_BYTES:
            file_name = self._directory.write(data)
            self._written[file_name] = len(data)
        kept = None if file_name else data
        return Payload(codec, dtype, n_raw_bytes, len(data), kept, file_name, checksum_of(data))

    @property
    def has_files(self) -> bool:
        """Whether large payloads go to side files."""
        return self._directory is not None

    @property
    def written(self) -> list[str]:
        """Names of the side files written so far."""
        return list(self._written)

    def is_there(self, payload: Payload) -> bool:
        """Return whether a payload's bytes are still where ``keep`` put them."""
        name = payload.file_name
        return name is None or (self._directory is not None and self._directory.has(name, payload.n_bytes))

    def give_up(self, payload: Payload) -> None:
        """Forget a payload's side file, which is not what was written; another one is written in its place."""
        if self._directory is not None and payload.file_name is not None:
            self._directory.remove(payload.file_name)
            self._written.pop(payload.file_name, None)

    def gone(self) -> list[str]:
        """Return the names of those side files that are not as they were written."""
        if self._directory is None:
            return []
        return [name for name, n_bytes in self._written.items() if not self._directory.has(name, n_bytes)]
