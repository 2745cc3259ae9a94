"""``raw.1``: the array's bytes as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slime_store.codecs.base import Array, Codec, element_count, little_endian, native_endian
from slime_store.errors import BlobCorruptError


@dataclass(frozen=True)
class RawCodec(Codec):
    """C-order, little-endian array bytes, uncompressed.

    It has no checksum of its own: for bytes that are guarded by another (a content hash).
    """

    codec_id: ClassVar[str] = "raw.1"

    def encode(self, array: Array) -> bytes:
        """Return the array's bytes; costs one copy."""
        return little_endian(array).tobytes()

    def decode(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array; BlobCorruptError if the number of bytes does not fit."""
        expected = element_count(shape) * dtype.itemsize
        if len(data) != expected:
            raise BlobCorruptError(f"{len(data)} raw bytes where {dtype} {shape} takes {expected}")
        array = np.empty(shape, dtype.newbyteorder("<"))
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        return native_endian(array)
