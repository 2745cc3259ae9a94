"""Arrays to bytes: exact narrowing, the choice of a codec, and the way back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slime_store.codecs.base import Array, little_endian
from slime_store.codecs.registry import BITS, ZSTD, get_codec
from slime_store.codecs.zstd import ZstdCodec
from slime_store.errors import BlobCorruptError, UnsupportedValueError

_CHUNK = 1 << 16
"""Elements looked at together: small enough that a second look finds them in the cache."""

_MAX_EMPTY = 1 << 20
_NARROW_TO = [np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32")]
_LIMITS = [(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), dtype) for dtype in _NARROW_TO]
_BOOL, _UINT8, _INT64, _FLOAT32 = (np.dtype(name) for name in ("bool", "uint8", "int64", "float32"))


def _stored_dtypes() -> dict[str, np.dtype[Any]]:
    plain = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
    dtypes: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in plain.split()}
    # A long double means different bits on different machines, so its name says which.
    long_double = np.dtype(np.longdouble)
    layout = {(63, 16): "x87", (112, 16): "quad"}.get((int(np.finfo(np.longdouble).nmant), long_double.itemsize))
    if layout is not None:
        dtypes[f"longdouble.{layout}"] = long_double
        dtypes[f"clongdouble.{layout}"] = np.dtype(np.clongdouble)
    return dtypes


DTYPES: dict[str, np.dtype[Any]] = _stored_dtypes()
"""Every dtype that is stored, by the name it is stored under, in this machine's byte order."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class EncodedArray:
    """An array as bytes, with what is needed to read them.

    Attributes:
        codec_id: which codec made ``data``.
        dtype: the name (a key of ``DTYPES``) of the dtype inside, which narrowing may have chosen.
        shape: the array's shape.
        data: the bytes.
    """

    codec_id: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def dtype_name(dtype: npt.DTypeLike) -> str | None:
    """Return the name under which ``dtype`` is stored, whatever its byte order; None if it is not stored."""
    try:
        native = np.dtype(dtype).newbyteorder("=")
    except TypeError:  # a dtype of numpy's newer kind, such as StringDType
        return None
    return _NAMES.get(native)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a stored name; BlobCorruptError if there is no such name."""
    dtype = DTYPES.get(name)
    if dtype is None:
        raise BlobCorruptError(f"dtype {name!r} is unknown here")
    return dtype


def narrow(array: Array) -> Array:
    """Return the same values in the smallest dtype that holds every one exactly.

    Integers go to the smallest of uint8, int8, uint16 ... int64, unsigned where both would do; float64
    goes to float32 only where every value comes back bit for bit (-0.0, NaN payloads). Other dtypes stay.
    Costs one look at the values and one write; returns ``array`` itself where it is narrow already.
    """
    return _narrow(array)[0]


def encode_array(array: Array) -> EncodedArray:
    """Narrow and compress an array of any shape and numeric, bool or complex dtype.

    The original dtype is for the caller to keep: ``widen`` goes back to it. Integers that are all 0 or
    1, and bools, are packed to bits.

    Raises:
        UnsupportedValueError: a dtype of other than numbers; the caller may store its bytes as uint8.
    """
    if dtype_name(array.dtype) is None:
        raise UnsupportedValueError("", f"numpy dtype {array.dtype} is not a plain number")
    small, is_bits = _narrow(array)
    codec = BITS if is_bits else ZSTD
    return EncodedArray(codec.codec_id, _NAMES[small.dtype.newbyteorder("=")], array.shape, codec.encode(small))


def decode_array(codec_id: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    """Return the array in its stored dtype: fresh, writable, C-contiguous.

    Raises:
        BlobCorruptError: damaged bytes, or a codec or dtype that is unknown here.
    """
    return get_codec(codec_id).decode(data, dtype_of(dtype), shape)


def decode_for_reading(codec_id: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    """Do what ``decode_array`` does, for a caller who makes something else of the array: it may be read-only."""
    codec = get_codec(codec_id)
    decode = codec.decode_for_reading if isinstance(codec, ZstdCodec) else codec.decode
    return decode(data, dtype_of(dtype), shape)


def decode_as(codec_id: str, dtype: str, count: int, data: bytes, target: np.dtype[Any]) -> Array:
    """Return an array of one dimension in another dtype, fresh and writable, as ``astype`` makes it.

    Raises:
        BlobCorruptError: as ``decode_array``.
    """
    codec, stored = get_codec(codec_id), dtype_of(dtype)
    if not isinstance(codec, ZstdCodec):
        return codec.decode(data, stored, (count,)).astype(target, copy=False)
    return codec.decode_as(data, stored, count, target)


def widen(array: Array, dtype: npt.DTypeLike) -> Array:
    """Return the array in the dtype it had before ``narrow``; itself where it has it already."""
    return array.astype(dtype, copy=False)


def is_too_empty(dtype: np.dtype[Any], shape: Sequence[int]) -> bool:
    """Whether an array has too many parts without bytes, such as strings of length 0, to be stored or made.

    numpy gives room even to these, so that a few bytes of a damaged document could take all memory.
    """
    return math.prod(shape) * _n_empty(dtype) > _MAX_EMPTY


def _n_empty(dtype: np.dtype[Any]) -> int:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return math.prod(shape) * _n_empty(base)
    if dtype.fields is not None:
        return sum(_n_empty(dtype.fields[name][0]) for name in dtype.names or ())
    return int(dtype.itemsize == 0)


def _narrow(array: Array) -> tuple[Array, bool]:
    """Return the narrowed array, and whether it is nothing but zeros and ones, one byte each."""
    dtype = array.dtype
    if dtype.kind == "b":
        return array, True
    if dtype.kind == "f" and dtype.itemsize == 8:
        return _narrow_floats(array), False
    if dtype.kind not in "iu":
        return array, False
    low, high = _bounds(array)
    if low >= 0 and high <= 1:
        return array.astype(_UINT8, copy=False), True
    for least, most, target in _LIMITS:
        if target.itemsize > dtype.itemsize:
            break
        if least <= low and high <= most:
            return array.astype(target, copy=False), False
    return array, False


def _bounds(array: Array) -> tuple[int, int]:
    """Return the least and the greatest of the values, and (0, 0) of none."""
    if array.size <= _CHUNK:
        return (int(array.min()), int(array.max())) if array.size else (0, 0)
    flat = array.reshape(-1)
    low = high = int(flat[0])
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        low, high = min(low, int(chunk.min())), max(high, int(chunk.max()))
    return low, high


def _narrow_floats(array: Array) -> Array:
    """Return float64 ``array`` as float32 if that loses nothing, and else as it is."""
    plain = little_endian(array)
    flat, small = plain.reshape(-1), np.empty(plain.shape, _FLOAT32)
    narrowed = small.reshape(-1)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        start, size = 0, 64  # a short first look: most arrays that cannot be narrowed show it at once
        while start < flat.size:
            before, after = flat[start : start + size], narrowed[start : start + size]
            after[...] = before
            if not np.array_equal(after.astype(np.float64).view(_INT64), before.view(_INT64)):
                return array
            # Subnormal float32 would read as 0 where a thread flushes them (torch.set_flush_denormal).
            bits = after.view(np.uint32)
            if ((bits + bits) - np.uint32(1) < np.uint32(0x00FFFFFF)).any():
                return array
            start, size = start + size, _CHUNK
    return small
