"""Python lists of one number type, to arrays and back, without a step of Python per element.

The types must come back exactly: 1, 1.0, True and np.int64(1) are equal but not the same, so a look at
the values is not enough. The obvious way looks at ``set(map(type, values))`` and then converts, 34 to 38 ns
an element. The quick way lets ``marshal`` write the list, 11 ns an element: a list of n exact ints of 32
bits becomes a header of 5 bytes and then n times the byte ``i`` and four bytes of value. If the length is
5 + 5 n and every fifth byte is ``i``, then (by induction along the bytes) each element was such an int,
since marshal writes every other type, and every larger int, under another byte. In the same way ``g`` and
eight bytes are an exact float, ``T`` and ``F`` the bools. These bytes live for a moment in memory and are
never stored; where this Python's marshal writes something else, the obvious way is taken.
"""

from __future__ import annotations

import marshal
import struct
from functools import cache
from typing import Any

import numpy as np

from slime_store.codecs.arrays import DTYPES, dtype_name
from slime_store.codecs.base import Array
from slime_store.errors import BlobCorruptError

_HEADER = 5  # "[" and the number of elements
_VERSION = 2  # the last version of marshal that writes floats in binary and no back references
_INT = np.dtype([("tag", "u1"), ("value", "<i4")])
_FLOAT = np.dtype([("tag", "u1"), ("value", "<f8")])
_NUMPY = "numpy."
_SHARED_INTS = 1 << 18
"""Ints below this are shared by the lists that are read: more than today's vocabularies have tokens."""
_SHARED_FROM = 256
"""Shortest list for which the look at its bounds pays."""


def list_to_array(values: list[Any]) -> tuple[Array, str] | None:
    """Return a list's values as a 1-D array, with the one type that they all had.

    The type is "int" (array of int32 or int64), "float" (float64), "bool" (bool), "numpy.<dtype>" (that
    dtype), or "empty" for no values at all. None means that the list cannot be told by an array and a
    type: mixed types, subclasses, ints beyond 64 bits, anything that is not a number.
    """
    if not values:
        return np.empty(0, np.uint8), "empty"
    first, last = type(values[0]), type(values[-1])
    if first is not last:
        return None
    if _marshal_is_as_expected:
        quick = None
        if first is int:
            quick = _quick(values, _INT, b"i", "int")
        elif first is float:
            quick = _quick(values, _FLOAT, b"g", "float")
        elif first is bool:
            quick = _quick_bools(values)
        if quick is not None:
            return quick
    return plain_list_to_array(values)


def plain_list_to_array(values: list[Any]) -> tuple[Array, str] | None:
    """Do what ``list_to_array`` does in the obvious way; ints always come as int64."""
    if not values:
        return np.empty(0, np.uint8), "empty"
    types = set(map(type, values))
    if len(types) != 1:
        return None
    (only,) = types
    if only is int:
        try:
            return np.array(values, np.int64), "int"
        except OverflowError:
            return None
    if only is float:
        return np.array(values, np.float64), "float"
    if only is bool:
        return np.array(values, np.bool_), "bool"
    if not issubclass(only, (np.number, np.bool_)):
        return None
    dtype = np.dtype(only)
    name = dtype_name(dtype)
    # numpy has two types of the same width (longlong beside int64): only the one that comes back is taken.
    if name is None or DTYPES[name].type is not only:
        return None
    return np.array(values, dtype), _NUMPY + name


def array_to_list(array: Array, item_type: str) -> list[Any]:
    """Return the list that ``list_to_array`` was given, from its array in any exactly narrowed dtype.

    Costs about 22 ns an element, the making of the objects; 14 ns and 8 bytes for token ids below 2**18, which are
    made once in a process and shared by all lists; 2 ns for bytes.

    Raises:
        BlobCorruptError: an ``item_type`` that is unknown, or an array that cannot be of it.
    """
    kind = array.dtype.kind
    if array.ndim != 1:
        raise BlobCorruptError(f"a list of shape {array.shape}")
    if item_type == "empty" and array.size == 0:
        return []
    if item_type == "int" and kind in "iu":
        return _to_ints(array)
    if item_type == "float" and kind == "f" and array.dtype.itemsize in (4, 8):
        return array.tolist()  # type: ignore[no-any-return]
    if item_type == "bool" and kind in "bu":
        return array.astype(np.bool_, copy=False).tolist()  # type: ignore[no-any-return]
    dtype = DTYPES.get(item_type.removeprefix(_NUMPY)) if item_type.startswith(_NUMPY) else None
    if dtype is None or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise BlobCorruptError(f"an array of {array.dtype} for a list of {item_type!r}")
    return list(array.astype(dtype, copy=False))


def _to_ints(array: Array) -> list[int]:
    """Return a list of ints. Equal ints may be one object, as Python's own small ones are: they cannot be changed."""
    if array.dtype == np.uint8:
        return list(array.tobytes())
    if array.size < _SHARED_FROM or int(array.min()) < 0 or int(array.max()) >= _SHARED_INTS:
        return array.tolist()  # type: ignore[no-any-return]
    indices = array.astype(np.int64) if array.dtype == np.uint64 else array  # NumPy 1 takes no uint64 for an index
    return _shared_ints().take(indices, mode="clip").tolist()  # type: ignore[no-any-return]


@cache
def _shared_ints() -> Array:
    """Return the ints from 0 on as objects: 10 MB, made when the first long list of token ids is read."""
    return np.arange(_SHARED_INTS).astype(object)


def _quick(values: list[Any], layout: np.dtype[Any], tag: bytes, item_type: str) -> tuple[Array, str] | None:
    written = _dumps(values)
    count = len(values)
    if written is None or len(written) != _HEADER + layout.itemsize * count:
        return None
    items = np.frombuffer(written, layout, offset=_HEADER)
    if items["tag"].tobytes() != tag * count:
        return None
    return items["value"].astype(layout["value"].newbyteorder("=")), item_type


def _quick_bools(values: list[Any]) -> tuple[Array, str] | None:
    written = _dumps(values)
    if written is None or len(written) != _HEADER + len(values):
        return None
    tags = np.frombuffer(written, np.uint8, offset=_HEADER)
    true = tags == ord("T")
    if not (true | (tags == ord("F"))).all():
        return None
    return true, "bool"


def _dumps(values: list[Any]) -> bytes | None:
    try:
        return marshal.dumps(values, _VERSION)
    except (ValueError, MemoryError):  # something inside that marshal does not know
        return None


def _check_marshal() -> bool:
    """Whether marshal writes the three layouts as above, with the types told apart."""
    ints, floats = [0, 1, -1, 151_936, 2**31 - 1, -(2**31)], [0.5, -0.0, 1e300, 1.0, 1.0]
    expected = (
        (ints, b"".join(b"i" + struct.pack("<i", value) for value in ints)),
        (floats, b"".join(b"g" + struct.pack("<d", value) for value in floats)),
        ([True, False, True], b"TFT"),
    )
    for values, body in expected:
        if _dumps(list(values)) != b"[" + struct.pack("<i", len(values)) + body:
            return False
    others: tuple[Any, ...] = (2**31, -(2**31) - 1, 2**80, np.int32(1), np.float64(1.0), np.True_, None, "i", b"g", 1j)
    return all((_dumps([other]) or b"?" * 6)[_HEADER : _HEADER + 1] not in (b"i", b"g", b"T", b"F") for other in others)


_marshal_is_as_expected = _check_marshal()
