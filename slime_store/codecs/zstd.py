"""``zstd.1``: byte shuffle, then zstd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slime_store.codecs import frames
from slime_store.codecs.base import Array, Codec, element_count, little_endian, native_endian

_WORDS = {2: np.uint16, 4: np.uint32}
_WORTH_WORDS = 1 << 14
_CHUNK = 1 << 16
"""Elements joined at a time: what lies between stays in the cache."""


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
        planes = np.ascontiguousarray(plain.reshape(-1).view(np.uint8).reshape(-1, width).T)
        return frames.compress(planes, repeats=plain.dtype.kind != "f")

    def decode(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array; BlobCorruptError for damaged bytes or another size."""
        array = self.decode_for_reading(data, dtype, shape)
        return array if array.flags.writeable else array.copy()

    def decode_for_reading(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Do what ``decode`` does; the array may be read-only, which saves elements of one byte a copy."""
        count, width = element_count(shape), dtype.itemsize
        if _in_words(width, count):
            return self.decode_as(data, dtype, count, dtype).reshape(shape)
        content = np.frombuffer(frames.decompress(data, count * width), np.uint8)
        if width == 1:
            array: Array = content.view(dtype)
            return array.reshape(shape)
        elements = np.empty((count, width), np.uint8)
        for i, plane in enumerate(content.reshape(width, count)):
            elements[:, i] = plane  # ... and for the way back, writing planes is up to 6 times faster than .T
        return native_endian(elements.reshape(-1).view(dtype.newbyteorder("<")).reshape(shape))

    def decode_as(self, data: bytes, dtype: np.dtype[Any], count: int, target: np.dtype[Any]) -> Array:
        """Return the array of ``count`` elements in another dtype, fresh and writable, as ``astype`` makes it.

        Raises:
            BlobCorruptError: damaged bytes or another number of elements.
        """
        width = dtype.itemsize
        if not _in_words(width, count):
            array = self.decode_for_reading(data, dtype, (count,))
            return array.astype(target, copy=not array.flags.writeable)
        planes = np.frombuffer(frames.decompress(data, count * width), np.uint8).reshape(width, count)
        out: Array = np.empty(count, target)
        for start in range(0, count, _CHUNK):
            out[start : start + _CHUNK] = _joined(planes[:, start : start + _CHUNK]).view(dtype)
        return out


def _in_words(width: int, count: int) -> bool:
    """Whether joining planes by shifts is faster than writing them one by one: of long arrays."""
    return width in _WORDS and count >= _WORTH_WORDS


def _joined(planes: Array) -> Array:
    """Return words of 2 or 4 bytes, in this machine's byte order, from rows of their bytes, the lowest first."""
    n_bytes = len(planes)
    if n_bytes == 1:
        row: Array = planes[0]
        return row
    low, high = _joined(planes[: n_bytes // 2]), _joined(planes[n_bytes // 2 :])
    words: Array = high.astype(_WORDS[n_bytes])
    words <<= 4 * n_bytes
    words |= low
    return words
