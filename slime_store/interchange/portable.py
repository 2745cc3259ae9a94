"""Samples as the dicts of slime's dumps, readable where slime_store is not installed."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import is_dataclass
from datetime import datetime, time
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np

from slime_store.codecs.documents.classes import as_record, with_fields
from slime_store.interchange.portable_keys import apart, has_hash, text_of
from slime_store.types import Placeholder, Record
from slime_store.types.duck import is_sample, nested_in_sample

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_COUNTERS = ("spec_info", "prefix_cache_info")


class PortableSamples:
    """Turns loaded samples into dicts, and what is with them into what they may be written with.

    Attributes:
        replaced: paths of values that only slime_store knows, in order. A ``Record`` of a class that is not available
            here becomes a ``SimpleNamespace`` with the same attributes (as a key or a member of a set, its text), a
            tuple or an enum member's value; a ``Placeholder`` its text; an instance of a class of slime_store what a
            record of it would become, a sample its dict; an image of several frames the list of them; a text of numpy
            that ends with a NUL one of Python. Keys that would become equal are their texts.
        pickle_protocol: that of the file: torch's own, or one that has the ``fold`` of a moment where there is one.
    """

    def __init__(self) -> None:
        self.replaced: list[str] = []
        self.pickle_protocol = 2

    def to_dict(self, sample: Any, where: str) -> dict[str, Any]:
        """Return what ``Sample.to_dict`` of slime gives, with all attributes; the sample is used up."""
        return self._to_dict(sample, f"{where}, ")

    def value(self, value: Any, where: str) -> Any:
        """Return a value of which nothing needs slime_store; what was given is used up."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in (list, deque) or isinstance(value, tuple):
            return self._items(value, where)
        if kind in (dict, OrderedDict, defaultdict, Counter):
            return self._mapping(value, where)
        if kind in (set, frozenset):
            return value if _PLAIN.issuperset(map(type, value)) else kind(self._members(value, where))
        if kind is slice:
            return slice(*self._items((value.start, value.stop, value.step), where))
        if kind is SimpleNamespace:
            self._mapping(vars(value), where)
        elif isinstance(value, BaseException):
            value.args = self._items(value.args, f"{where}.args")
        elif kind is np.ndarray:
            self._objects(value, where)
        elif isinstance(value, (datetime, time)):
            self.pickle_protocol = 4 if value.fold else self.pickle_protocol
        elif isinstance(value, (np.str_, np.bytes_)):
            return self._numpy_text(value, where)
        elif isinstance(value, (Enum, Record, Placeholder)) or is_dataclass(value) or nested_in_sample(value):
            return self._instance(value, where)
        return self._media(value, where)

    # -- containers ------------------------------------------------------------------------------

    def _items(self, value: Any, where: str) -> Any:
        if type(value) in (list, tuple) and _PLAIN.issuperset(map(type, value)):
            return value
        made = [self.value(each, f"{where}[{i}]") for i, each in enumerate(value)]
        return self._like(value, made, where)

    def _like(self, value: Any, made: list[Any], where: str) -> Any:
        """Return a list, tuple or deque as the one given, with other items; itself where they are the same."""
        if _is_ours(type(value)):
            self.replaced.append(where)
            return tuple(made)
        if all(one is other for one, other in zip(made, value, strict=True)):
            return value
        if isinstance(value, tuple):
            return tuple.__new__(type(value), made)
        return deque(made, value.maxlen) if isinstance(value, deque) else made

    def _mapping(self, value: dict[Any, Any], where: str) -> Any:
        if not _PLAIN.issuperset(map(type, value)):
            keys = self._keys(list(value), [f"{where}[key]"] * len(value))
            items = [self.value(item, f"{where}[{text_of(key)}]") for key, item in value.items()]
            value.clear()
            for key, item in zip(keys, items, strict=True):  # update would count
                value[key] = item
        elif not _PLAIN.issuperset(map(type, value.values())):
            for key, item in value.items():
                value[key] = self.value(item, f"{where}[{key!r}]")
        return value

    def _objects(self, value: np.ndarray[Any, Any], where: str) -> None:
        if value.dtype == np.dtype(object):
            flat = value.reshape(-1)
            for i, each in enumerate(flat.tolist()):
                flat[i] = self.value(each, f"{where}[{i}]")

    def _numpy_text(self, value: Any, where: str) -> Any:
        """Return a text of numpy, as Python's own where numpy would cut it when it is read: it ends with a NUL."""
        plain = "".join([value]) if isinstance(value, str) else b"".join([value])
        if plain[-1:] not in ("\0", b"\0"):
            return value
        self.replaced.append(where)
        return plain

    # -- keys ------------------------------------------------------------------------------------

    def _members(self, values: Any, where: str) -> list[Any]:
        return self._keys(list(values), [f"{where}[{i}]" for i in range(len(values))])

    def _keys(self, values: list[Any], where: list[str]) -> list[Any]:
        return apart(values, list(map(self._key, values, where)))

    def _key(self, value: Any, where: str) -> Any:
        """Return a plain value that has a hash."""
        if isinstance(value, Record) and value.kind != "enum":
            self.replaced.append(where)
            is_tuple = value.kind == "namedtuple" and value == value.numbered(0)
            return tuple(self._key(each, where) for each in value.fields.values()) if is_tuple else text_of(value)
        if isinstance(value, tuple):
            made = self._like(value, [self._key(each, where) for each in value], where)
        else:
            made = self.value(value, where)
        return made if has_hash(made) else text_of(value)

    # -- instances of classes --------------------------------------------------------------------

    def _instance(self, value: Any, where: str) -> Any:
        if isinstance(value, Placeholder):
            self.replaced.append(where)
            return value.text
        if isinstance(value, Record):
            self.replaced.append(where)
            return self._record(value, where)
        if _is_ours(type(value)):
            self.replaced.append(where)
            if is_sample(value):
                return self._to_dict(value, f"{where}.")
            if nested_in_sample(value) in ("SpecInfo", "PrefixCacheInfo"):
                return self._mapping(dict(vars(value)), where)
            record = as_record(value)
            return text_of(value) if record is None else self._record(record, where)
        if is_dataclass(value):
            return with_fields(value, lambda name, item: self.value(item, f"{where}.{name}"))
        if not isinstance(value, Enum):
            self._mapping(vars(value), where)
        return value

    def _record(self, value: Record, where: str) -> Any:
        if value.kind == "enum":
            return self.value(value.fields.get("value"), f"{where}.value")
        fields = {name: self.value(each, f"{where}.{name}") for name, each in value.fields.items()}
        return tuple(fields.values()) if value.kind == "namedtuple" else SimpleNamespace(**fields)

    def _to_dict(self, sample: Any, where: str) -> dict[str, Any]:
        data = {}
        for name, item in vars(sample).items():
            if name == "status" and isinstance(item, Enum):
                item = item.value
            elif name in _COUNTERS and type(item).__qualname__.startswith("Sample."):
                item = dict(vars(item))
            data[name] = self.value(item, f"{where}{name}")
        return data

    # -- tensors and images ----------------------------------------------------------------------

    def _media(self, value: Any, where: str) -> Any:
        torch, pil = sys.modules.get("torch"), sys.modules.get("PIL.Image")
        if torch is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            # torch writes the whole storage of a view
            whole = value.untyped_storage().nbytes() <= value.numel() * value.element_size()
            return value if whole else value.clone()
        if pil is not None and isinstance(value, pil.Image):
            if _is_ours(type(value)):
                self.replaced.append(where)
                return [self.value(each, f"{where}.frames[{i}]") for i, each in enumerate(_frames(value))]
            value.info = self.value(value.info, f"{where}.info")
        return value


def _is_ours(kind: type[Any]) -> bool:
    """Whether a class cannot be loaded without slime_store."""
    return any(f"{base.__module__}.".startswith("slime_store.") for base in kind.__mro__)


def _frames(image: Any) -> Iterator[Any]:
    for number in range(image.n_frames):
        image.seek(number)
        yield image.copy()
