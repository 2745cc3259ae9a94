"""The contents that documents refer to, read once for many samples that share them."""

from __future__ import annotations

from collections import OrderedDict

from slime_store.errors import BlobMissingError, StoreError
from slime_store.store.handle import StoreHandle

CACHE_BYTES = 64 << 20


class CachedBlobs:
    """A ``BlobSource`` that reads contents when they are asked for and keeps those used last.

    Args:
        handle: the open store.
    """

    def __init__(self, handle: StoreHandle) -> None:
        self._handle = handle
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._failed: OrderedDict[str, StoreError] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> bytes:
        """Return the content of this digest.

        Raises:
            BlobMissingError: the store does not hold it, or its side file is gone.
            BlobCorruptError: stored bytes are damaged.
        """
        if name in self._failed:
            raise self._failed[name]
        content = self._kept.get(name)
        if content is not None:
            self._kept.move_to_end(name)
            return content
        self._shrink(0)  # not even one that is larger, while the next is read
        try:
            with self._handle.reading() as connection:
                content = self._handle.blobs(connection).contents([name]).get(name)
            if content is None:
                raise BlobMissingError(f"content {name}")
        except StoreError as error:
            self._failed[name] = error
            if len(self._failed) > 1000:
                self._failed.popitem(last=False)
            raise
        self._keep(name, content)
        return content

    def _keep(self, name: str, content: bytes) -> None:
        self._kept[name] = content
        self._bytes += len(content)
        self._shrink(1)

    def _shrink(self, least: int) -> None:
        """Let go of those that were not used for the longest time; ``least`` of them stay, whatever their size."""
        while self._bytes > CACHE_BYTES and len(self._kept) > least:
            self._bytes -= len(self._kept.popitem(last=False)[1])
