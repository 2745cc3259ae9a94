"""Documents of builtin and standard-library values."""

from __future__ import annotations

import array
import datetime as dt
import decimal
import fractions
import math
import pathlib
import struct
import types
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from slime_store.codecs.documents import bodies, keys
from slime_store.errors import BlobCorruptError
from slime_store.types import Placeholder

if TYPE_CHECKING:
    from slime_store.codecs.documents.decoder import DocumentDecoder
    from slime_store.codecs.documents.encoder import DocumentEncoder

_FACTORIES: dict[str, Any] = {
    t.__name__: t for t in (list, dict, set, tuple, int, float, str, bool, bytes, complex, frozenset)
}
_PATHS: dict[str, type[pathlib.PurePath]] = {
    t.__name__: t for t in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
}
_ARRAY_TYPES = frozenset("bBhHiIlLqQfd")
_CANONICAL_NAN = struct.pack(">d", math.nan)


def encode_float(value: float) -> Any:
    """Finite floats are JSON numbers (the shortest text that reads back equal); the others are tagged."""
    if math.isfinite(value):
        return value
    if math.isinf(value):
        return {"$float": "inf" if value > 0 else "-inf"}
    bits = struct.pack(">d", value)
    return {"$float": "nan" if bits == _CANONICAL_NAN else bits.hex()}


def _decode_float(body: str, decoder: DocumentDecoder) -> float:
    if body in ("nan", "inf", "-inf"):
        return float(body)
    value: float = struct.unpack(">d", bytes.fromhex(body))[0]
    return value


def _encode_time_zone(zone: dt.tzinfo | None, value: Any, encoder: DocumentEncoder) -> Any:
    """None, the parts of a fixed offset, or the key of a zoneinfo zone; for any other the placeholder of ``value``."""
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        named = zone.tzname(None) != dt.timezone(offset).tzname(None)
        name = encoder.text(zone.tzname(None)) if named else None
        return [offset.days, offset.seconds, offset.microseconds, name]
    if type(zone) is zoneinfo.ZoneInfo and zone.key and _is_by_key(zone):
        return zone.key
    return encoder.unsupported(value, f"{type(zone).__name__} is not a time zone that can be stored exactly")


def _is_by_key(zone: zoneinfo.ZoneInfo) -> bool:
    """True for a zone of the system's database; one that was read from some file may only have taken the name."""
    try:
        zone.__reduce__()
    except Exception:
        return False
    return True


def _decode_time_zone(body: Any) -> dt.tzinfo | None:
    if body is None:
        return None
    if isinstance(body, str):
        try:
            return zoneinfo.ZoneInfo(body)
        except OSError as error:  # a name that the system's files do not take
            raise BlobCorruptError(f"{body[:40]!r} is not a time zone") from error
    *days, name = bodies.items(body, 4)
    offset = dt.timedelta(*bodies.whole(days, 3))
    if name is None:
        return dt.timezone.utc if not offset else dt.timezone(offset)
    return dt.timezone(offset, name)


def _encode_datetime(value: dt.datetime, encoder: DocumentEncoder) -> Any:
    zone = _encode_time_zone(value.tzinfo, value, encoder)
    if keys.is_placeholder(zone):
        return zone
    return {"$datetime": [value.replace(tzinfo=None, fold=0).isoformat(), zone, value.fold]}


def _decode_datetime(body: list[Any], decoder: DocumentDecoder) -> dt.datetime | Placeholder:
    moment, zone, fold = bodies.items(body, 3)
    if isinstance(zone, Placeholder):  # as written once: without its zone it would be another moment
        return Placeholder("datetime:datetime", f"{moment} in {zone.text}")
    return dt.datetime.fromisoformat(moment).replace(tzinfo=_decode_time_zone(zone), fold=fold)


def _encode_time(value: dt.time, encoder: DocumentEncoder) -> Any:
    zone = _encode_time_zone(value.tzinfo, value, encoder)
    if keys.is_placeholder(zone):
        return zone
    return {"$time": [value.replace(tzinfo=None, fold=0).isoformat(), zone, value.fold]}


def _decode_time(body: list[Any], decoder: DocumentDecoder) -> dt.time | Placeholder:
    moment, zone, fold = bodies.items(body, 3)
    if isinstance(zone, Placeholder):  # as written once: without its zone it would be another moment
        return Placeholder("datetime:time", f"{moment} in {zone.text}")
    return dt.time.fromisoformat(moment).replace(tzinfo=_decode_time_zone(zone), fold=fold)


def _encode_timedelta(value: dt.timedelta, encoder: DocumentEncoder) -> Any:
    return {"$timedelta": [value.days, value.seconds, value.microseconds]}


def _encode_set(value: set[Any] | frozenset[Any], encoder: DocumentEncoder) -> Any:
    members = list(value)
    if len(set(members)) < len(members):
        raise ValueError("two of its members have become equal")
    return {"$set" if type(value) is set else "$frozenset": encoder.members(members)}


def _encode_deque(value: deque[Any], encoder: DocumentEncoder) -> Any:
    return {"$deque": [encoder.items(value), value.maxlen]}


def _decode_deque(body: list[Any], decoder: DocumentDecoder) -> deque[Any]:
    values, longest = bodies.items(body, 2)
    return deque(bodies.items(values), longest)


def _encode_ordered(value: OrderedDict[Any, Any] | Counter[Any], encoder: DocumentEncoder) -> Any:
    if getattr(value, "__dict__", None):
        return encoder.unsupported(value, f"{type(value).__name__} with attributes of its own")
    return {"$ordereddict" if type(value) is OrderedDict else "$counter": encoder.mapping(value)}


def _encode_defaultdict(value: defaultdict[Any, Any], encoder: DocumentEncoder) -> Any:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        return encoder.unsupported(value, "its default_factory is not a builtin type")
    return {"$defaultdict": [name, encoder.mapping(value)]}


def _decode_defaultdict(body: list[Any], decoder: DocumentDecoder) -> defaultdict[Any, Any]:
    factory, values = bodies.items(body, 2)
    return defaultdict(None if factory is None else _FACTORIES[factory], bodies.mapping(values))


def _encode_bytes(value: bytes | bytearray, encoder: DocumentEncoder) -> Any:
    tag = "$bytes" if type(value) is bytes else "$bytearray"
    return {tag: encoder.payload(np.frombuffer(value, np.uint8))}


def _encode_array(value: array.array[Any], encoder: DocumentEncoder) -> Any:
    if value.typecode not in _ARRAY_TYPES:  # "u", and "w" of Python 3.13
        return encoder.unsupported(value, "arrays of characters are not supported")
    data = np.frombuffer(value, np.uint8) if len(value) else np.empty(0, np.uint8)
    return {"$array": {"typecode": value.typecode, "itemsize": value.itemsize, **encoder.payload(data)}}


def _decode_array(body: dict[str, Any], decoder: DocumentDecoder) -> array.array[Any]:
    if body["typecode"] not in _ARRAY_TYPES:
        raise BlobCorruptError(f"array type {body['typecode']!r} is unknown")
    value: array.array[Any] = array.array(body["typecode"])
    if value.itemsize != body["itemsize"]:
        raise BlobCorruptError(f"array type {body['typecode']!r} has another size on this machine")
    value.frombytes(decoder.payload(body))
    return value


def _encode_namespace(value: types.SimpleNamespace, encoder: DocumentEncoder) -> Any:
    if not all(type(name) is str for name in vars(value)):
        return encoder.unsupported(value, "an attribute whose name is no text")
    return {"$namespace": encoder.mapping(vars(value))}


def _encode_complex(value: complex, encoder: DocumentEncoder) -> Any:
    return {"$complex": [encode_float(value.real), encode_float(value.imag)]}


def _decode_complex(body: list[Any], decoder: DocumentDecoder) -> complex:
    real, imaginary = bodies.items(body, 2)
    if type(real) is not float or type(imaginary) is not float:
        raise BlobCorruptError("a complex number that is not of two floats")
    return complex(real, imaginary)


def _encode_fraction(value: fractions.Fraction, encoder: DocumentEncoder) -> Any:
    parts = value.numerator, value.denominator
    if not all(type(part) is int or isinstance(part, np.integer) for part in parts) or not parts[1]:
        return encoder.unsupported(value, "a fraction that is not of two whole numbers")
    return encoder.whole(value, lambda: {"$fraction": encoder.items(parts)})


def _decode_fraction(body: list[Any], decoder: DocumentDecoder) -> fractions.Fraction:
    numerator, denominator = bodies.items(body, 2)
    if not all(isinstance(part, (int, np.integer)) for part in body):  # a text or Decimal may have an exponent
        raise BlobCorruptError("a fraction that is not of two whole numbers")
    return fractions.Fraction(numerator, denominator)


def _encode_slice(value: slice, encoder: DocumentEncoder) -> Any:
    return {"$slice": encoder.items((value.start, value.stop, value.step))}


def _encode_path(value: pathlib.PurePath, encoder: DocumentEncoder) -> Any:
    return {"$path": [type(value).__name__, encoder.text(str(value))]}


def _decode_path(body: list[Any], decoder: DocumentDecoder) -> pathlib.PurePath:
    kind, path = bodies.items(body, 2)
    try:
        return _PATHS[kind](bodies.text(path))
    except NotImplementedError:  # a Windows path read on POSIX, or the other way round
        return _PATHS["Pure" + kind](path)


ENCODERS: dict[type[Any], Callable[[Any, DocumentEncoder], Any]] = {
    tuple: lambda value, encoder: {"$tuple": encoder.items(value)},
    set: _encode_set,
    frozenset: _encode_set,
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    complex: _encode_complex,
    range: lambda value, encoder: {"$range": encoder.items((value.start, value.stop, value.step))},
    slice: _encode_slice,
    type(...): lambda value, encoder: {"$ellipsis": None},
    deque: _encode_deque,
    OrderedDict: _encode_ordered,
    Counter: _encode_ordered,
    defaultdict: _encode_defaultdict,
    types.SimpleNamespace: _encode_namespace,
    array.array: _encode_array,
    dt.datetime: _encode_datetime,
    dt.date: lambda value, encoder: {"$date": value.isoformat()},
    dt.time: _encode_time,
    dt.timedelta: _encode_timedelta,
    decimal.Decimal: lambda value, encoder: {"$decimal": str(value)},
    fractions.Fraction: _encode_fraction,
    uuid.UUID: lambda value, encoder: {"$uuid": value.hex},
    **dict.fromkeys(_PATHS.values(), _encode_path),
}

DECODERS: dict[str, Callable[[Any, DocumentDecoder], Any]] = {
    "$float": _decode_float,
    "$tuple": lambda body, decoder: tuple(bodies.items(body)),
    "$set": lambda body, decoder: set(keys.to_members(bodies.items(body))),
    "$frozenset": lambda body, decoder: frozenset(keys.to_members(bodies.items(body))),
    "$bytes": lambda body, decoder: bytes(decoder.payload(body)),
    "$bytearray": lambda body, decoder: bytearray(decoder.payload(body)),
    "$complex": _decode_complex,
    "$range": lambda body, decoder: range(*bodies.whole(body, 3)),
    "$slice": lambda body, decoder: slice(*bodies.items(body, 3)),
    "$ellipsis": lambda body, decoder: ...,
    "$deque": _decode_deque,
    "$ordereddict": lambda body, decoder: OrderedDict(bodies.mapping(body)),
    "$counter": lambda body, decoder: Counter(bodies.mapping(body)),
    "$defaultdict": _decode_defaultdict,
    "$namespace": lambda body, decoder: types.SimpleNamespace(**bodies.mapping(body)),
    "$array": _decode_array,
    "$datetime": _decode_datetime,
    "$date": lambda body, decoder: dt.date.fromisoformat(body),
    "$time": _decode_time,
    "$timedelta": lambda body, decoder: dt.timedelta(*bodies.whole(body, 3)),
    "$decimal": lambda body, decoder: decimal.Decimal(bodies.text(body)),
    "$fraction": _decode_fraction,
    "$uuid": lambda body, decoder: uuid.UUID(hex=bodies.text(body)),
    "$path": _decode_path,
}
