"""One zstd frame, checked: the layer under ``zstd.1`` and ``bits.1``.

Every frame carries the size of its content and a checksum over it. Reading checks the size before it
allocates or decompresses anything, insists on the checksum, and leaves no byte unread.
"""

from __future__ import annotations

import threading

import numpy as np
import zstandard

from slime_store.codecs.base import Array
from slime_store.errors import BlobCorruptError

LEVEL = 1  # by measurement: docs/measurements/compressors.md. Readers do not depend on it.
NEAR_HASH_LOG = 6
"""Of contents that hardly repeat: remembers 64 places, so that chance matches do not cost more than they save."""

_MAX_RATIO = 131072 // 4  # a zstd block takes at least 4 bytes and holds at most 128 KiB


class _Contexts(threading.local):
    """Two compressors and one decompressor a thread: they are not thread-safe, and cost 8 us to make."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
        near = zstandard.ZstdCompressionParameters.from_level(
            LEVEL, hash_log=NEAR_HASH_LOG, min_match=7, write_checksum=True, write_content_size=True
        )
        self.near_compressor = zstandard.ZstdCompressor(compression_params=near)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(array: Array, *, repeats: bool = True) -> bytes:
    """Return a C-contiguous array's bytes as one zstd frame; costs 13 bytes at least.

    Args:
        array: of any shape and dtype.
        repeats: look for what comes again far away too; without it measured floats take 30% less time to read.
    """
    compressor = _contexts.compressor if repeats else _contexts.near_compressor
    return compressor.compress(array.reshape(-1).view(np.uint8).data)


def decompress(data: bytes, expected_bytes: int) -> bytes:
    """Return the content of one zstd frame that was made by ``compress``.

    Raises:
        BlobCorruptError: this is not one whole frame with ``expected_bytes`` of content and a checksum
            that agrees with it.
    """
    try:
        frame = zstandard.get_frame_parameters(data)
    except zstandard.ZstdError as error:
        raise BlobCorruptError(f"not a zstd frame ({error})") from None
    if frame.content_size != expected_bytes:
        declared = "no size" if frame.content_size >= 2**63 else f"{frame.content_size} bytes"
        raise BlobCorruptError(f"a zstd frame that declares {declared} where {expected_bytes} bytes are due")
    if not frame.has_checksum:
        raise BlobCorruptError("a zstd frame without its checksum")
    if expected_bytes > len(data) * _MAX_RATIO:
        raise BlobCorruptError(f"{len(data)} bytes of zstd cannot hold {expected_bytes}")
    try:
        if expected_bytes == 0:  # of an empty frame, decompress() reads no further than the size
            return _read_empty(data)
        content = _contexts.decompressor.decompress(data, allow_extra_data=False)
    except (zstandard.ZstdError, MemoryError) as error:
        raise BlobCorruptError(f"a zstd frame that does not decompress ({error})") from None
    if len(content) != expected_bytes:
        raise BlobCorruptError(f"a zstd frame of {len(content)} bytes where {expected_bytes} are due")
    return content


def _read_empty(data: bytes) -> bytes:
    reader = _contexts.decompressor.decompressobj()
    if reader.decompress(data) or not reader.eof or reader.unused_data:
        raise BlobCorruptError("a zstd frame of no content with something in it or behind it")
    return b""
