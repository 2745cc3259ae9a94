"""Rules for the builtin types and the standard library's."""

from __future__ import annotations

import array
import builtins
import datetime as dt
import decimal
import fractions
import pathlib
import types
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

from slime_store.interchange.restricted.rules import Rule, integer, names, refuse, require

_FACTORIES = (list, dict, set, tuple, int, float, str, bool, bytes, complex, frozenset)
_PURE_PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath)
_ARRAY_TYPES = "bBhHiIlLqQfd"
_ARRAY_FORMATS = {  # the machine formats of array's own pickling, little-endian ones
    **dict(zip((0, 1, 2, 4, 6, 8, 10), "BbHhIiQ", strict=True)),
    12: "q",
    14: "f",
    16: "d",
}
_STRANGE_EXCEPTIONS = (OSError, UnicodeError, ImportError, SyntaxError, StopIteration, SystemExit)


def _encode(text: Any, encoding: Any) -> bytes:
    """Bytes, as protocol 2 writes them."""
    if encoding != "latin1":
        refuse(f"bytes in the encoding {encoding!r}")
    return require(text, str, "bytes").encode("latin-1")


def _bytes(*args: Any) -> bytes:
    if args:
        refuse("a call of bytes with arguments")
    return b""


def _bytearray(content: Any = b"") -> bytearray:
    return bytearray(require(content, bytes, "a bytearray"))


def _complex(real: Any, imaginary: Any) -> complex:
    return complex(require(real, float, "a complex number"), require(imaginary, float, "a complex number"))


def _range(*args: Any) -> range:
    return range(*[integer(each, "a range") for each in args])


def _defaultdict(factory: Any = None) -> defaultdict[Any, Any]:
    if factory is not None and not any(factory is each for each in _FACTORIES):
        refuse("a default factory that is no builtin type")
    return defaultdict(factory)


def _deque(items: Any = (), maxlen: Any = None) -> deque[Any]:
    if type(items) not in (tuple, list) or not (maxlen is None or (type(maxlen) is int and maxlen >= 0)):
        refuse("a deque of something else")
    return deque(items, maxlen)


def _updated(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    for key, item in pairs:
        dict.__setitem__(value, key, item) if type(value) is not OrderedDict else value.update({key: item})
    return value


def _extended(value: Any, items: list[Any]) -> Any:
    value.extend(items)
    return value


def _numbers(*args: Any) -> tuple[int, ...]:
    return tuple(integer(each, "a time") for each in args)


def _moment(kind: Any) -> Any:
    def make(state: Any, zone: Any = None) -> Any:
        if not (zone is None or type(zone) in (dt.timezone, zoneinfo.ZoneInfo)):
            refuse("a time zone of another kind")
        content = require(state, bytes, f"a {kind.__name__}")
        return kind(content) if zone is None else kind(content, zone)

    return make


def _zone(offset: Any, *name: Any) -> dt.timezone:
    return dt.timezone(require(offset, dt.timedelta, "a time zone"), *[require(each, str, "a zone") for each in name])


def _named_zone(key: Any, _from_cache: Any) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(require(key, str, "a time zone"))


def _decimal(text: Any) -> decimal.Decimal:
    return decimal.Decimal(require(text, str, "a Decimal"))


def _fraction(*parts: Any) -> fractions.Fraction:
    """``"1/3"`` from older Pythons, numerator and denominator from newer ones."""
    if len(parts) == 1:
        text = require(parts[0], str, "a Fraction")
        parts = tuple(int(part) for part in (text if "/" in text else f"{text}/1").split("/"))
    numerator, denominator = (integer(part, "a Fraction") for part in parts)
    return fractions.Fraction(numerator, denominator)


def _uuid(_value: Any, state: Any) -> uuid.UUID:
    return uuid.UUID(int=integer(names(state, "a UUID")["int"], "a UUID"))


def _path(kind: str) -> Any:
    def make(*parts: Any) -> pathlib.PurePath:
        texts = [require(each, str, "a path") for each in parts]
        try:
            made: pathlib.PurePath = getattr(pathlib, kind)(*texts)
        except NotImplementedError:  # a Windows path read on POSIX, or the other way round
            made = getattr(pathlib, f"Pure{kind}")(*texts)
        return made

    return make


def _namespace(value: types.SimpleNamespace, state: Any) -> types.SimpleNamespace:
    vars(value).update(names(state, "a namespace"))
    return value


def _array(typecode: Any, items: Any = ()) -> array.array[Any]:
    if type(typecode) is not str or len(typecode) != 1 or typecode not in _ARRAY_TYPES:
        refuse("an array of another type")
    return array.array(typecode, require(items, list, "an array") if items else [])


def _array_from_bytes(_kind: Any, typecode: Any, machine_format: Any, content: Any) -> array.array[Any]:
    made = _array(typecode)
    stored = _ARRAY_FORMATS.get(machine_format) if type(machine_format) is int else None
    if stored is None or array.array(stored).itemsize != made.itemsize or (stored in "fd") != (typecode in "fd"):
        refuse("an array in another machine's format")
    made.frombytes(require(content, bytes, "an array"))
    return made


def _exception(value: BaseException, state: Any) -> BaseException:
    vars(value).update(names(state, "an exception"))
    return value


def _exception_rules() -> dict[str, Rule]:
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    plain = [kind for kind in kinds if not issubclass(kind, _STRANGE_EXCEPTIONS) and "Group" not in kind.__name__]
    return {f"builtins.{kind.__name__}": Rule(kind, state=_exception) for kind in plain}


RULES: dict[str, Rule] = {
    **{f"builtins.{kind.__name__}": Rule(constant=kind) for kind in _FACTORIES},
    "_codecs.encode": Rule(_encode),
    "builtins.bytes": Rule(_bytes, constant=bytes),
    "builtins.bytearray": Rule(_bytearray),
    "builtins.complex": Rule(_complex, constant=complex),
    "builtins.set": Rule(lambda items: set(require(items, list, "a set")), constant=set),
    "builtins.frozenset": Rule(lambda items: frozenset(require(items, list, "a frozenset")), constant=frozenset),
    "builtins.range": Rule(_range),
    "builtins.slice": Rule(slice),
    "builtins.Ellipsis": Rule(constant=...),
    **_exception_rules(),
    "collections.OrderedDict": Rule(lambda: OrderedDict(), pairs=_updated),
    "collections.Counter": Rule(lambda counts={}: Counter(require(counts, dict, "a Counter")), pairs=_updated),
    "collections.defaultdict": Rule(_defaultdict, pairs=_updated),
    "collections.deque": Rule(_deque, items=_extended),
    "datetime.datetime": Rule(_moment(dt.datetime)),
    "datetime.time": Rule(_moment(dt.time)),
    "datetime.date": Rule(_moment(dt.date)),
    "datetime.timedelta": Rule(lambda *args: dt.timedelta(*_numbers(*args))),
    "datetime.timezone": Rule(_zone),
    "zoneinfo.ZoneInfo": Rule(),
    "zoneinfo.ZoneInfo._unpickle": Rule(_named_zone),
    "decimal.Decimal": Rule(_decimal),
    "fractions.Fraction": Rule(_fraction),
    "uuid.UUID": Rule(lambda: None, state=_uuid, needs_state=True),
    "types.SimpleNamespace": Rule(lambda: types.SimpleNamespace(), state=_namespace),
    "array.array": Rule(_array, items=_extended, constant=array.array),
    "array._array_reconstructor": Rule(_array_from_bytes),
    **{
        f"{module}.{kind}": Rule(_path(kind))
        for module in ("pathlib", "pathlib._local")  # where Python 3.13 has them
        for kind in ("PurePosixPath", "PureWindowsPath", "PosixPath", "WindowsPath")
    },
}
