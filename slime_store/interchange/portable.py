"""Samples as the dicts of slime's dumps, readable where slime_store is not installed."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from types import SimpleNamespace
from typing import Any

from slime_store.types import Placeholder, Record

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class PortableSamples:
    """Turns loaded samples into dicts, and notes what had to be replaced.

    Attributes:
        replaced: paths of values that only slime_store knows, in order: a ``Record`` of a class that is not available
            here becomes a ``SimpleNamespace`` with the same attributes (as a key or a member of a set, its text), a
            tuple or an enum member's value; a ``Placeholder`` its text.
    """

    def __init__(self) -> None:
        self.replaced: list[str] = []

    def to_dict(self, sample: Any, where: str) -> dict[str, Any]:
        """Return what ``Sample.to_dict`` of slime gives, with all attributes; the sample is used up."""
        data = {name: self._value(value, f"{where}, {name}") for name, value in vars(sample).items()}
        if isinstance(data.get("status"), Enum):
            data["status"] = data["status"].value
        for name in ("spec_info", "prefix_cache_info"):
            if name in data and type(data[name]).__qualname__.startswith("Sample."):
                data[name] = dict(vars(data[name]))
        return data

    def _value(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in (list, tuple, set, frozenset, deque):
            if _PLAIN.issuperset(map(type, value)):
                return value
            make = self._key if kind in (set, frozenset) else self._value
            made = [make(each, f"{where}[{i}]") for i, each in enumerate(value)]
            return deque(made, value.maxlen) if kind is deque else kind(made)
        if kind in (dict, OrderedDict, defaultdict):
            pairs = [(self._key(k, f"{where}[key]"), self._value(v, f"{where}[{k!r}]")) for k, v in value.items()]
            value.clear()
            value.update(pairs)
            return value
        if isinstance(value, Record):
            self.replaced.append(where)
            return self._record(value, where)
        if isinstance(value, Placeholder):
            self.replaced.append(where)
            return value.text
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            # torch writes the whole storage of a view
            whole = value.untyped_storage().nbytes() <= value.numel() * value.element_size()
            return value if whole else value.clone()
        return value

    def _key(self, value: Any, where: str) -> Any:
        """Return what can be hashed, and differs where the keys do."""
        if isinstance(value, Record) and value.kind != "enum":
            self.replaced.append(where)
            is_tuple = value.kind == "namedtuple" and value == value.numbered(0)
            return tuple(self._key(each, where) for each in value.fields.values()) if is_tuple else str(value)
        if type(value) is tuple:
            return tuple(self._key(each, where) for each in value)
        return self._value(value, where)

    def _record(self, value: Record, where: str) -> Any:
        if value.kind == "enum":
            return self._value(value.fields.get("value"), f"{where}.value")
        fields = {name: self._value(each, f"{where}.{name}") for name, each in value.fields.items()}
        return tuple(fields.values()) if value.kind == "namedtuple" else SimpleNamespace(**fields)
