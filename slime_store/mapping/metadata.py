"""Whether metadata meets a filter, and what its document must contain when it does."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from slime_store.codecs.documents import is_clean

_LONGEST = 1000  # characters of a wanted text that are looked for: longer ones may be stored elsewhere
_CHOICES = (tuple, set, frozenset)
_SCALARS = frozenset({str, int, float, bool, type(None)})


def metadata_matches(metadata: Any, wanted: Mapping[str, Any]) -> bool:
    """True when the metadata is a dict that has every wanted key, with the value, or one of the values, wanted."""
    return isinstance(metadata, dict) and all(
        key in metadata and _matches(metadata[key], value) for key, value in wanted.items()
    )


def fragments(key: str, wanted: Any) -> list[str]:
    """Return texts of which a metadata document contains at least one when it meets ``metadata_matches``.

    Holds for documents that are plain JSON objects: those that begin with the tag ``$dict`` hold other texts. A
    document that contains one may still not match: the key may be one of a dict inside.
    """
    if key[:1] == "$" or not is_clean(key):
        return []
    name = _json(key) + ":"
    values = [*wanted, None] if isinstance(wanted, _CHOICES) else [wanted]
    found = {name + '{"$'}  # a value that JSON cannot say, which may be equal all the same
    for value in values:
        if value is None or type(value) is bool:
            found.add(name + _json(value))
        elif type(value) is str:
            if is_clean(value) and len(value) <= _LONGEST:
                found.add(name + _json(value))
        else:
            return [name]
    return sorted(found)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _matches(value: Any, wanted: Any) -> bool:
    """Equal, or one of several: a tuple, set or frozenset of wanted values also means any of them."""
    if isinstance(wanted, _CHOICES) and any(_equal(value, choice) for choice in wanted):
        return True
    return _equal(value, wanted)


def _equal(value: Any, wanted: Any) -> bool:
    """Whether two values are equal as ``SampleFilter.metadata`` says; never raises."""
    kind = type(value)
    if kind is type(wanted) and kind in _SCALARS:
        return bool(value == wanted)
    try:
        return _same(value, wanted)
    except Exception:  # an object's own comparison; a value that contains itself
        return False


def _same(value: Any, wanted: Any) -> bool:
    value, wanted = _native(value), _native(wanted)
    if isinstance(value, bool) is not isinstance(wanted, bool) or _is_date(value) is not _is_date(wanted):
        return False
    if _is_array(value) or _is_array(wanted):
        return type(value) is type(wanted) and _same_arrays(value, wanted)
    for kind in (list, tuple, deque):
        if isinstance(value, kind):
            return isinstance(wanted, kind) and len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(value, dict):
        return isinstance(wanted, dict) and len(value) == len(wanted) and _same_dicts(value, wanted)
    if isinstance(value, (set, frozenset)):
        return isinstance(wanted, (set, frozenset)) and len(value) == len(wanted) and _same_keys(value, wanted)
    answer = value == wanted
    return answer is True or (type(answer) is np.bool_ and bool(answer))


def _native(value: Any) -> Any:
    """Return a numpy scalar as the Python value that it equals; of a date, a time or a record there is none."""
    if isinstance(value, np.generic) and not isinstance(value, np.void) and not _is_date(value):
        return value.item()
    return value


def _is_date(value: Any) -> bool:
    return isinstance(value, np.generic) and value.dtype.kind in "mM"


def _is_array(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(value, (np.ndarray, np.void)) or (torch is not None and isinstance(value, torch.Tensor))


def _same_arrays(value: Any, wanted: Any) -> bool:
    """Compare two arrays or two tensors, element by element; a sparse tensor equals none."""
    if value.shape != wanted.shape:
        return False
    if not isinstance(value, (np.ndarray, np.void)):
        torch = sys.modules["torch"]
        if (value.dtype is torch.bool) is not (wanted.dtype is torch.bool):
            return False
        return bool((value.detach().cpu() == wanted.detach().cpu()).all())
    if value.dtype.names is not None or wanted.dtype.names is not None:
        return value.dtype == wanted.dtype and _same(value.tolist(), wanted.tolist())
    if value.dtype.hasobject or wanted.dtype.hasobject:
        return _same(value.tolist(), wanted.tolist())
    return (value.dtype.kind == "b") is (wanted.dtype.kind == "b") and np.array_equal(value, wanted)


def _same_dicts(value: dict[Any, Any], wanted: dict[Any, Any]) -> bool:
    if isinstance(value, OrderedDict) and isinstance(wanted, OrderedDict):  # equal in Python only in the same order
        return _same([[*pair] for pair in value.items()], [[*pair] for pair in wanted.items()])
    return _same_keys(value, wanted) and all(_same(item, wanted[key]) for key, item in value.items())


def _same_keys(values: Iterable[Any], wanted: Iterable[Any]) -> bool:
    keys = {key: key for key in wanted}
    return all(key in keys and _same(key, keys[key]) for key in values)
