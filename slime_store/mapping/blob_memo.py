"""Names for the large payloads of documents: by content, each distinct payload once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

DIGEST_BYTES = 32


def digest_of(array: np.ndarray[Any, Any]) -> str:
    """Return the hex BLAKE2b-256 of an array's bytes in C order."""
    return hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=DIGEST_BYTES).hexdigest()


class BlobMemo:
    """A ``BlobSink`` that keeps one array for each distinct content.

    The same memory put again (eight samples that share one tensor) is not hashed again.

    Args:
        copy: take copies, for when the caller may change the arrays before they are written.
    """

    def __init__(self, *, copy: bool) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._copy = copy
        self._known: dict[tuple[int, int, str], tuple[str, Any]] = {}

    def put(self, array: np.ndarray[Any, Any]) -> str:
        """Keep the array and return its digest."""
        plain = np.ascontiguousarray(array)
        memory = (plain.__array_interface__["data"][0], plain.nbytes, plain.dtype.str)
        if memory in self._known:
            return self._known[memory][0]
        name = digest_of(plain)
        if name not in self.arrays:
            self.arrays[name] = plain.copy() if self._copy else plain
        self._known[memory] = (name, plain)  # the reference keeps the address taken
        return name
