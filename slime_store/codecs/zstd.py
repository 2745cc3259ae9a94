"""``zstd.1``: byte shuffle, then zstd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slime_store.codecs import frames
from slime_store.codecs.base import Array, Codec, element_count, little_endian, native_endian


@dataclass(frozen=True)
class ZstdCodec(Codec):
    """C-order, little-endian bytes in one zstd frame with content size and checksum.

    Elements of more than one byte are shuffled first: all lowest bytes, then all second bytes and
    so on (for complex numbers over the bytes of the whole element). Decoding costs two copies.
    """

    codec_id: ClassVar[str] = "zstd.1"

    def encode(self, array: Array) -> bytes:
        """Return the compressed bytes; 13 to 20 more than the array's own where nothing can be saved."""
        plain = little_endian(array)
        width = plain.dtype.itemsize
        if width == 1:
            return frames.compress(plain)
        # Transposed copies are the fastest shuffle in numpy, 2.5 to 3.6 GB/s ...
        return frames.compress(np.ascontiguousarray(plain.reshape(-1).view(np.uint8).reshape(-1, width).T))

    def decode(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array; BlobCorruptError for damaged bytes or another size."""
        array = self.decode_for_reading(data, dtype, shape)
        return array if array.flags.writeable else array.copy()

    def decode_for_reading(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Do what ``decode`` does; the array may be read-only, which saves elements of one byte a copy."""
        count, width = element_count(shape), dtype.itemsize
        content = np.frombuffer(frames.decompress(data, count * width), np.uint8)
        if width == 1:
            array: Array = content.view(dtype)
            return array.reshape(shape)
        elements = np.empty((count, width), np.uint8)
        for i, plane in enumerate(content.reshape(width, count)):
            elements[:, i] = plane  # ... and writing planes is 1.3 to 6 times faster than the way back by .T
        return native_endian(elements.reshape(-1).view(dtype.newbyteorder("<")).reshape(shape))
