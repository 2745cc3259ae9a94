"""Equality as the store promises it: what was recorded and what came back differ in nothing.

``==`` is too kind (``1 == 1.0 == True``, ``0.0 == -0.0``, dicts in any order) and too strict (NaN). These
rules hold at every depth:

* Types are the same, also of numbers: ``int``, ``bool``, ``float`` and each numpy scalar differ, and so do
  list and tuple, None and an empty list.
* Floats are compared by their bits, in arrays and tensors too: -0.0 is not 0.0, and a NaN equals a
  NaN of the same sign and payload. (A numpy long double has padding, so its values are compared, and NaNs by sign.)
* Dicts have the same keys, of the same types, in the same order; sets the same elements; a deque the same
  ``maxlen`` and a defaultdict the same factory.
* Arrays have the same dtype (byte order, metadata and the class of a structure included) and shape; tensors the same
  dtype, shape and layout. Memory order, device, ``requires_grad`` and being a ``Parameter`` are ignored: tensors come
  back as values on the cpu.
* Images have the same mode, size and ``info``, and in each frame the same pixels and palette. Their class
  is ignored: an image opened from a file comes back in memory.
* A datetime has the same fields, ``fold`` and UTC offset; a Decimal the same digits and exponent; an
  exception the same class, arguments and attributes.
* Any other object has the same class and the same attributes, in any order; one without attributes is
  equal by ``==``. Classes, functions and modules are the same by identity.
* Classes of the same name from slime, miles and ``slime_store.types`` count as one, see ``assert_same``.

Whether two parts are one shared object is not looked at; cycles are followed once.
"""

from __future__ import annotations

import array
import datetime
import decimal
import enum
import pathlib
import struct
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from slime_store.testing.compare_arrays import is_one_kind, rule_for
from slime_store.testing.differences import Child, Mismatch, Place, show, unequal

_PLAIN = {type(None), bool, int, str, bytes}  # == on these is exact once the types are the same
_FRAMEWORK_MODULES = ("slime_store.types.", "slime.utils.types", "slime.rollout.base_types")
_FRAMEWORK_CLASSES = {
    "Sample",
    "Sample.Status",
    "Sample.SpecInfo",
    "Sample.PrefixCacheInfo",
    "RolloutFnTrainOutput",
    "RolloutFnEvalOutput",
    "ParamInfo",
    "MultimodalType",
}


def assert_same(actual: Any, expected: Any, *, path: str = "value", sample_types: bool = True) -> None:
    """Fail at the first difference between two values, by the rules of this module.

    Costs one pass over both values and never recurses, so any depth that fits in memory is fine.

    Args:
        actual: the value at hand.
        expected: what it should be.
        path: what to call the values in the message.
        sample_types: let a ``Sample``, output or ``ParamInfo`` of slime, miles and this package stand for
            one another. Between two different ones, a field that only one class declares may be missing on the other
            side if it holds its default. False compares these classes like any other.

    Raises:
        AssertionError: they differ; the message begins with the path to the difference, e.g.
            ``value.samples[3][1].metadata['a'][2]: int 1 != float 1.0``, the actual value first.
    """
    difference = _first_difference(actual, expected, path, sample_types)
    if difference is not None:
        raise AssertionError(difference)


def same(actual: Any, expected: Any, *, sample_types: bool = True) -> bool:
    """Return whether ``assert_same`` would pass."""
    return _first_difference(actual, expected, "", sample_types) is None


def _first_difference(actual: Any, expected: Any, path: str, sample_types: bool) -> str | None:
    pending = [(Place(path), actual, expected)]
    # pairs already met, with the objects themselves: the id of a part that was let go may be used again
    met: dict[tuple[int, int], tuple[Any, Any]] = {}
    while pending:
        place, one, other = pending.pop()
        if one is other or (id(one), id(other)) in met:
            continue
        try:
            children = list(_parts(one, other, sample_types))
        except Mismatch as mismatch:
            for step in mismatch.steps:
                place = Place(step, place)
            return f"{place}: {mismatch.text}"
        if children:
            met[id(one), id(other)] = (one, other)
            pending.extend((Place(step, place), *pair) for step, *pair in reversed(children))
    return None


def _parts(one: Any, other: Any, sample_types: bool) -> Iterator[Child]:
    """Yield the parts that have to be the same for the two to be; raise ``Mismatch`` if they cannot be."""
    kind = type(one)
    if kind is not type(other) and not (
        is_one_kind(one, other) or (sample_types and _is_one_framework_class(kind, type(other)))
    ):
        raise unequal(one, other)
    if kind in _PLAIN:
        if one != other:
            raise unequal(one, other)
        return
    if (foreign := rule_for(one)) is not None:
        yield from foreign(one, other)
        return
    if (rule := next((rule for base, rule in _RULES if isinstance(one, base)), None)) is not None:
        yield from rule(one, other)
    elif isinstance(one, _BY_IDENTITY) or not _has_attributes(one):
        if one != other:
            raise unequal(one, other)
        return
    if not isinstance(one, _WITHOUT_ATTRIBUTES):
        yield from _attribute_parts(one, other)


def _sequence_parts(one: Any, other: Any) -> Iterator[Child]:
    if len(one) != len(other):
        raise Mismatch(f"{type(one).__name__} of {len(one)} != {type(one).__name__} of {len(other)}")
    if not _is_same_fast(one, other):
        names = getattr(type(one), "_fields", None)
        steps: Iterable[Any] = range(len(one)) if names is None else [f".{name}" for name in names]
        yield from zip(steps, one, other, strict=True)


def _is_same_fast(one: Any, other: Any) -> bool:
    """Whether two sequences of plain values are the same; False says only that nobody knows yet."""
    kinds = list(map(type, one))
    distinct = set(kinds)
    if distinct == {float} and set(map(type, other)) == distinct:
        return array.array("d", one).tobytes() == array.array("d", other).tobytes()
    return distinct <= _PLAIN and kinds == list(map(type, other)) and list(one) == list(other)


def _deque_parts(one: deque[Any], other: deque[Any]) -> Iterator[Child]:
    yield ".maxlen", one.maxlen, other.maxlen
    yield from _sequence_parts(one, other)


def _dict_parts(one: dict[Any, Any], other: dict[Any, Any]) -> Iterator[Child]:
    if isinstance(one, defaultdict) and isinstance(other, defaultdict):
        yield ".default_factory", one.default_factory, other.default_factory
    mine, theirs = _items(one), _items(other)
    for (key, value), (wanted, expected) in zip(mine, theirs, strict=False):  # lengths are checked below
        if not (type(key) is type(wanted) is str and key == wanted) and not same(key, wanted):
            raise _key_mismatch(key, wanted, one, other)
        yield (key,), value, expected
    if len(mine) > len(theirs):
        raise Mismatch(f"unexpected key {show(mine[len(theirs)][0])}")
    if len(mine) < len(theirs):
        raise Mismatch(f"key {show(theirs[len(mine)][0])} is missing")


def _items(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the items in order, whatever a subclass makes of ``items`` (an OrderedDict keeps its own order)."""
    return list(OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value))


def _key_mismatch(key: Any, wanted: Any, one: dict[Any, Any], other: dict[Any, Any]) -> Mismatch:
    if not any(same(wanted, each) for each in one):
        return Mismatch(f"key {show(wanted)} is missing")
    if not any(same(key, each) for each in other):
        return Mismatch(f"unexpected key {show(key)}")
    return Mismatch(f"order of keys: {show(key)} where {show(wanted)} was expected")


def _set_parts(one: Any, other: Any) -> Iterator[Child]:
    if len(one) != len(other):
        raise Mismatch(f"{type(one).__name__} of {len(one)} != {type(one).__name__} of {len(other)}")
    wanted: dict[int, list[Any]] = defaultdict(list)
    for element in other:
        wanted[hash(element)].append(element)
    strays = [element for element in one if not _take(element, wanted[hash(element)])]
    rest = [element for bucket in wanted.values() for element in bucket]
    for element in strays:  # the hash of a NaN is its address
        if not _take(element, rest):
            raise Mismatch(f"unexpected element {show(element)}; not found: {', '.join(map(show, rest[:3]))}")
    yield from ()


def _take(element: Any, candidates: list[Any]) -> bool:
    for position, candidate in enumerate(candidates):
        if same(element, candidate):
            del candidates[position]
            return True
    return False


def _value_rule(exact: Callable[[Any], Any]) -> Callable[[Any, Any], Iterator[Child]]:
    """Return a rule for indivisible values: ``exact`` maps one to plain data that says all about it."""

    def rule(one: Any, other: Any) -> Iterator[Child]:
        if not same(exact(one), exact(other)):
            raise unequal(one, other)
        yield from ()

    return rule


def _exception_parts(one: BaseException, other: BaseException) -> Iterator[Child]:
    yield ".args", one.args, other.args


def _moment(value: Any) -> tuple[Any, ...]:
    return value.replace(tzinfo=None).isoformat(), value.fold, value.tzinfo is None, value.utcoffset()


_RULES: tuple[tuple[Any, Callable[[Any, Any], Iterator[Child]]], ...] = (
    (enum.Enum, _value_rule(lambda member: (member.name, member.value))),
    ((list, tuple), _sequence_parts),
    (dict, _dict_parts),
    (float, _value_rule(lambda number: struct.pack("<d", number))),
    (complex, _value_rule(lambda number: struct.pack("<dd", number.real, number.imag))),
    (int, _value_rule(lambda number: int.__add__(number, 0))),
    (str, _value_rule(lambda text: str.encode(text, "utf-32", "surrogatepass"))),
    ((bytes, bytearray), _value_rule(lambda data: bytes.join(b"", [data]))),
    (deque, _deque_parts),
    ((set, frozenset), _set_parts),
    ((datetime.datetime, datetime.time), _value_rule(_moment)),
    (decimal.Decimal, _value_rule(lambda number: tuple(number.as_tuple()))),
    (range, _value_rule(lambda value: (value.start, value.stop, value.step))),
    (pathlib.PurePath, _value_rule(str)),
    (array.array, _value_rule(lambda values: (values.typecode, values.tobytes()))),
    (BaseException, _exception_parts),
)
_BY_IDENTITY = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
# their attributes are caches, or are what the rule looked at
_WITHOUT_ATTRIBUTES = (enum.Enum, pathlib.PurePath, *_BY_IDENTITY)


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in type(value).__mro__)


def _attributes(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{base.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if slot not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    found.update(getattr(value, "__dict__", {}))
    return found


def _attribute_parts(one: Any, other: Any) -> Iterator[Child]:
    mine, theirs = _attributes(one), _attributes(other)
    for name, value in theirs.items():
        if name in mine:
            yield f".{name}", mine[name], value
        elif not _is_default_elsewhere(other, one, name, value):
            raise Mismatch(f"attribute {name!r} is missing")
    for name, value in mine.items():
        if name not in theirs and not _is_default_elsewhere(one, other, name, value):
            raise Mismatch(f"unexpected attribute {name!r}")


def _is_default_elsewhere(owner: Any, lacking: Any, name: str, value: Any) -> bool:
    """Whether ``name`` is a field that only the owner's class, of another framework, has."""
    if type(owner) is type(lacking) or not (is_dataclass(owner) and is_dataclass(lacking)):
        return False
    if any(field.name == name for field in fields(lacking)):
        return False
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(owner)
    }
    return name in defaults and same(value, defaults[name])


def _is_one_framework_class(one: type, other: type) -> bool:
    return one.__qualname__ == other.__qualname__ and all(
        kind.__qualname__ in _FRAMEWORK_CLASSES
        and kind.__module__.replace("miles.", "slime.", 1).startswith(_FRAMEWORK_MODULES)
        for kind in (one, other)
    )
