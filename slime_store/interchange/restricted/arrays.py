"""Rules for numpy: arrays, scalars and dtypes, from their parts and never by numpy's own ``__setstate__``.

A dtype's ``__setstate__`` takes flags as they are given, so that a file could pass raw bytes off as Python objects.
Here a dtype is only made from a plain type code, or from named fields of such.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from slime_store.codecs.arrays import is_too_empty
from slime_store.interchange.restricted.rules import Rule, dimensions, integer, refuse, require, sizes

_CODE = re.compile(r"[biufc](?:1|2|4|8|16|32)|[SUV]\d{1,12}|[Mm]8|O8?")
_ORDERS = ("<", ">", "|", "=")
_UNIT = re.compile(r"generic|[YMWDhms]|[munpfa]s")


@dataclass(frozen=True)
class _Code:
    """The type code of a dtype, before its state is known; numpy writes both for each dtype."""

    text: str


def _code(text: Any, *_flags: Any) -> _Code:
    if type(text) is not str or not _CODE.fullmatch(text):
        refuse(f"a numpy dtype {text!r}")
    return _Code(text)


def _dtype(code: _Code, state: Any) -> np.dtype[Any]:
    """Return a dtype from its code and the tuple that numpy keeps of it.

    The tuple is version, byte order, subarray, field names, fields, item size, alignment, flags and, for dates and
    times, their unit.
    """
    if type(state) is not tuple or len(state) < 7 or state[1] not in _ORDERS:
        refuse("a numpy dtype of another form")
    order, subarray, field_names, fields = state[1:5]
    text = "O" if code.text[0] == "O" else code.text
    if subarray is not None:
        base, shape = subarray
        return np.dtype((_plain_dtype(base), dimensions((shape,) if type(shape) is int else shape, "a dtype's shape")))
    if field_names is not None:
        return _structured(field_names, fields, state)
    if text[0] in "Mm":
        return np.dtype(f"{order if order in '<>' else '='}{text}[{_unit(state[8][1])}]")
    made: np.dtype[Any] = np.dtype(text)
    return made.newbyteorder(order) if order in "<>" else made


def _structured(field_names: Any, fields: Any, state: tuple[Any, ...]) -> np.dtype[Any]:
    if type(field_names) is not tuple or type(fields) is not dict:
        refuse("a numpy dtype with fields of another form")
    described = [fields[require(name, str, "a field name")] for name in field_names]
    if not all(type(each) is tuple and len(each) in (2, 3) for each in described):
        refuse("a numpy dtype with fields of another form")
    spec: dict[str, Any] = {
        "names": list(field_names),
        "formats": [_plain_dtype(each[0]) for each in described],
        "offsets": list(sizes([each[1] for each in described], "field offsets")),
        "itemsize": integer(state[5], "an item size"),
    }
    if any(len(each) == 3 for each in described):
        spec["titles"] = [require(each[2], str, "a title") if len(each) == 3 else None for each in described]
    is_aligned = bool(len(state) > 7 and type(state[7]) is int and state[7] & 0x80)
    made: np.dtype[Any] = np.dtype(spec, align=is_aligned)  # type: ignore[call-overload]
    if made.itemsize != spec["itemsize"]:
        refuse("a numpy dtype whose item size does not fit its fields")
    return made


def _plain_dtype(value: Any) -> np.dtype[Any]:
    """Return a dtype that may be part of another: one that holds no objects."""
    if not isinstance(value, np.dtype) or value.hasobject:
        refuse("a numpy dtype of objects inside another")
    return value


def _unit(content: Any) -> str:
    unit, count, *_divisor = content
    text = unit.decode("ascii") if type(unit) is bytes else str(unit)
    if not _UNIT.fullmatch(text) or type(count) is not int or not 1 <= count < 2**31:
        refuse("a unit of time that numpy does not have")
    return text if count == 1 else f"{count}{text}"


class _Shell:
    """An array before its state is known."""


def _shell(kind: Any, _shape: Any, _code: Any) -> _Shell:
    if kind is not np.ndarray:
        refuse("a subclass of numpy's array")
    return _Shell()


def _array(_made: _Shell, state: Any) -> np.ndarray[Any, Any]:
    _version, shape, dtype, is_fortran, content = require(state, tuple, "an array's state")
    made = _from_parts(dtype, dimensions(shape, "an array's shape"), "F" if is_fortran else "C", content)
    if made.dtype.isnative or made.dtype.fields is not None:
        return made
    native: np.ndarray[Any, Any] = made.astype(made.dtype.newbyteorder("="))  # as numpy does it here, and only here
    return native


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    if order not in ("C", "F"):
        refuse("an array in another order")
    return _from_parts(dtype, dimensions(shape, "an array's shape"), order, content)


def _from_parts(dtype: Any, shape: tuple[int, ...], order: Any, content: Any) -> np.ndarray[Any, Any]:
    """Return an array over ``content``, not a copy of it: of bytes it is read-only."""
    count = math.prod(shape)
    if not isinstance(dtype, np.dtype):
        refuse("an array without a dtype")
    if dtype == np.dtype(object):
        if len(require(content, list, "an array of objects")) != count:
            refuse("an array of objects of another size")
        objects = np.empty(count, object)
        for i, item in enumerate(content):
            objects[i] = item
        return objects.reshape(shape, order=order)
    if type(content) not in (bytes, bytearray) or len(content) != count * dtype.itemsize:
        refuse("an array whose bytes do not fit its shape")
    if is_too_empty(dtype, (count,)):
        refuse("an array of many elements without bytes")
    if not content:
        return np.zeros(shape, dtype)
    made: np.ndarray[Any, Any] = np.frombuffer(content, dtype).reshape(shape, order=order)
    return made


def _scalar(dtype: Any, content: Any = b"") -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or type(content) is not bytes:
        refuse("a numpy scalar of objects")
    if is_too_empty(dtype, ()):
        refuse("a numpy scalar of many elements without bytes")
    if dtype.itemsize == 0:  # an empty text
        return np.zeros((), dtype)[()]
    if len(content) != dtype.itemsize:
        refuse("a numpy scalar whose bytes do not fit its dtype")
    return np.frombuffer(content, dtype).copy()[0]


RULES: dict[str, Rule] = {
    "numpy.ndarray": Rule(constant=np.ndarray),
    "numpy.memmap": Rule(constant=np.ndarray),  # its values, as everywhere in the store
    "numpy.dtype": Rule(_code, state=_dtype, needs_state=True),
    **{
        f"numpy.{core}.{name}": rule
        for core in ("core", "_core")  # before numpy 2.0, and since
        for name, rule in (
            ("multiarray._reconstruct", Rule(_shell, state=_array, needs_state=True)),
            ("multiarray.scalar", Rule(_scalar)),
            ("numeric._frombuffer", Rule(_from_buffer)),
        )
    },
}
