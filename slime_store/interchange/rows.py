"""A sample as a row: one value of its column's type for each column, or None."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from slime_store.codecs.lists import list_to_array
from slime_store.interchange.columns import DECLARED, Column
from slime_store.interchange.values import as_array, json_text, plain
from slime_store.mapping.rewards import numeric_value
from slime_store.mapping.text import searchable
from slime_store.types import LocatedSample

_INT64 = range(-(2**63), 2**63)
_INT32 = np.iinfo(np.int32)
_ODD = object()  # a value that its column cannot hold


class RowMaker:
    """Makes rows.

    Values have the columns' types: lists are NumPy arrays (nested ones lists), "json" is ``Json``, text has no NUL and
    no lone surrogate.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [column for column in columns if column.attribute is not None]
        self._order = [column.name for column in columns]
        self._with_extra = len(self._columns) < len(columns)

    def row(self, located: LocatedSample) -> list[Any]:
        """Return the values in the order of the columns."""
        attributes = vars(located.sample)
        values: dict[str, Any] = {}
        odd = {name: value for name, value in attributes.items() if name not in DECLARED} if self._with_extra else {}
        for column in self._columns:
            if column.attribute == "":
                value = getattr(located.place, column.name)
                values[column.name] = searchable(value) if isinstance(value, str) else value
                continue
            value = _value(column, attributes)
            if value is _ODD:
                odd[str(column.attribute)] = attributes[column.attribute]
                value = None
            values[column.name] = value
        if self._with_extra:
            values["extra"] = Json(odd) if odd else None
        return [values[name] for name in self._order]


class Json:
    """Any value, to be written as JSON; where ``bare``, text is written as it is when there is nothing but text."""

    def __init__(self, value: Any, bare: bool = False) -> None:
        self.value = value
        self._bare = bare

    def __str__(self) -> str:
        if self._bare and isinstance(self.value, str):
            return searchable(self.value)
        return json_text(self.value)


def _value(column: Column, attributes: dict[str, Any]) -> Any:
    value: Any = attributes.get(column.attribute or "")
    kind, _, key = column.name.partition(".")
    if key and kind != "extra":
        value = value.get(key) if isinstance(value, dict) else None
        return numeric_value(value) if kind == "reward" else None if value is None else Json(value, bare=True)
    if column.name == "reward":
        return numeric_value(value)
    if column.name == "reward_json" and numeric_value(value) is not None:
        return None
    if column.name in ("spec_info", "prefix_cache_info") and hasattr(value, "to_dict"):
        value = value.to_dict()
    if value is None:
        return None
    if column.type == "json":
        return Json(value, bare=bool(key))
    if column.type == "text":
        return _text(value, column.name in ("label", "prompt"))
    if column.type == "list<text>":
        return _texts(value)
    if column.type.startswith("list"):
        return _array(value, column)
    return _scalar(value, column.type)


def _text(value: Any, any_value: bool) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return searchable(value)
    return json_text(value) if any_value else _ODD


def _texts(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return [searchable(item) for item in value]
    return _ODD


def _scalar(value: Any, type_name: str) -> Any:
    if type_name == "bool":
        return bool(value) if isinstance(value, (bool, np.bool_)) else _ODD
    if type_name == "int64":
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))
        return int(value) if whole and int(value) in _INT64 else _ODD
    number = numeric_value(value)
    return _ODD if number is None else number


def _array(value: Any, column: Column) -> Any:
    try:
        if isinstance(value, list):
            found = list_to_array(value)
            array = np.asarray(value) if found is None else found[0]
        else:
            array = np.asarray(value) if isinstance(value, (tuple, np.ndarray)) else as_array(value)
    except Exception:  # ragged lists, and whatever else has no array
        return _ODD
    n_dimensions = column.type.count("list")
    if array.size == 0 and array.ndim <= n_dimensions:
        array = np.empty((0,) * n_dimensions, np.int32)
    if array.ndim != n_dimensions:
        return _ODD
    if "float" in column.type:
        return array.astype(np.float64, copy=False) if array.dtype.kind in "fiub" else _ODD
    if array.dtype.kind not in "iub" or (array.size and (array.min() < _INT32.min or array.max() > _INT32.max)):
        return _ODD
    narrow = array.astype(np.int32, copy=False)
    return narrow if n_dimensions == 1 else narrow.tolist()


def native(value: Any) -> Any:
    """Return a row's value for JSON: what ``Json`` wraps, and arrays as lists."""
    if isinstance(value, Json):
        return value.value
    return value.tolist() if isinstance(value, np.ndarray) else value


def as_json_line(names: Sequence[str], row: Sequence[Any]) -> str:
    """Return a row as one JSON object in one line."""
    return json_text({name: native(value) for name, value in zip(names, row, strict=True)})


def as_cell(value: Any) -> str:
    """Return a row's value as the text of a CSV cell: None as nothing, lists and dicts as JSON, text as it is."""
    if value is None:
        return ""
    if isinstance(value, str):
        return searchable(value)
    if isinstance(value, Json):
        return str(value)
    bare = plain(native(value))
    return bare if isinstance(bare, str) else json_text(bare)
