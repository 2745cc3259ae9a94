"""``bits.1``: arrays of nothing but 0 and 1, eight to a byte, then zstd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slime_store.codecs import frames
from slime_store.codecs.base import Array, Codec, element_count
from slime_store.errors import BlobCorruptError


@dataclass(frozen=True)
class BitsCodec(Codec):
    """Element ``8 * j + i`` (C order) is bit ``i``, counted from the lowest, of byte ``j``, in one zstd frame.

    For bool arrays and one-byte integer arrays that hold only 0 and 1. The last byte's spare bits are 0.
    """

    codec_id: ClassVar[str] = "bits.1"

    def encode(self, array: Array) -> bytes:
        """Return the compressed bits; what is not 0 counts as 1, so the caller has looked."""
        return frames.compress(np.packbits(array, bitorder="little"))

    def decode(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array; BlobCorruptError for damaged bytes, another size or a dtype of wider elements."""
        if dtype.kind not in "bui" or dtype.itemsize != 1:
            raise BlobCorruptError(f"packed bits where {dtype} is due")
        count = element_count(shape)
        packed = np.frombuffer(frames.decompress(data, (count + 7) // 8), np.uint8)
        return np.unpackbits(packed, count=count, bitorder="little").view(dtype).reshape(shape)
