"""What a codec is: an array in, bytes out, under an id whose meaning never changes."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from slime_store.errors import BlobCorruptError

Array: TypeAlias = npt.NDArray[Any]
"""An array of any dtype; each signature says which shapes and dtypes it takes."""


class Codec(ABC):
    """One way to write an array as bytes.

    The meaning of a ``codec_id`` is frozen, with committed fixtures: a changed layout gets a new id.
    Codecs hold no state and may be used from any number of threads at once; compression and
    decompression release the GIL, so that two threads are nearly twice as fast as one.
    """

    codec_id: ClassVar[str]

    @abstractmethod
    def encode(self, array: Array) -> bytes:
        """Return the bytes of ``array``; its dtype and shape are for the caller to keep."""

    @abstractmethod
    def decode(self, data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return a fresh, writable, C-contiguous array of ``dtype`` and ``shape``.

        Raises:
            BlobCorruptError: ``data`` is damaged or does not have this dtype and shape.
        """


def element_count(shape: tuple[int, ...]) -> int:
    """Return the number of elements of ``shape``; BlobCorruptError for a negative dimension."""
    if any(size < 0 for size in shape):
        raise BlobCorruptError(f"shape {shape} has a negative dimension")
    return math.prod(shape)


def little_endian(array: Array) -> Array:
    """Return ``array`` C-contiguous and little-endian; itself where it is so already."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def native_endian(array: Array) -> Array:
    """Return a little-endian ``array`` in this machine's byte order; itself on nearly every machine."""
    if sys.byteorder == "little":
        return array
    return array.astype(array.dtype.newbyteorder("="))
