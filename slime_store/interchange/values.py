"""Any value of a sample as plain JSON, and its text: what programs that know neither Python nor slime can read."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
import sys
from collections import deque
from collections.abc import Mapping
from datetime import date, time
from enum import Enum
from typing import Any

import numpy as np

from slime_store.mapping.text import searchable, shown_int
from slime_store.types import Placeholder, Record

_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode
_MOST_COUNTED = 1 << 16
"""Elements to which a value is written out that has no room for them itself: a range, a sparse tensor."""
_FLAT = frozenset({type(None), bool, int, float, str})
_MOMENTS = (np.datetime64, np.timedelta64)
_LINE_ENDS = re.compile("[\x7f\x85\u2028\u2029]")  # some programs take these for the end of a line


def json_text(value: Any) -> str:
    """Return JSON in one line, valid whatever the value is; see ``plain``."""
    try:
        text = _dumps(value)  # most values are plain already
        if "\\u0000" in text or not _is_encodable(text) or _has_other_keys(value):
            raise ValueError
    except (TypeError, ValueError, RecursionError):
        try:
            text = _dumps(plain(value))
        except RecursionError:
            text = _dumps(f"<{type(value).__name__} that nests too deeply>")
    return _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: Any) -> Any:
    """Return a value as None, bools, numbers, texts, lists and dicts with text as keys.

    NaN and infinities become the texts ``"nan"``, ``"inf"``, ``"-inf"``; NUL and lone surrogates in text U+2400 and
    U+FFFD, as in the SQL columns; tuples, sets, arrays and tensors lists; enum members their value, dataclasses dicts;
    dates, paths, numbers of other types, ranges and sparse tensors far larger than what they hold, their text; integers
    of thousands of digits a hexadecimal one; bytes ``{"$bytes": base64}``; an image ``{"$image": {"mode",
    "size"}}``, without its pixels. Keys that are no text become their JSON; where two keys would be the same, the dict
    becomes ``{"$dict": [[key, value], ...]}``.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return shown_int(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str) and not isinstance(value, Enum):
        return searchable(str(value))
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, range) and value[_MOST_COUNTED:]:
        return _said(value)
    if isinstance(value, (list, tuple, set, frozenset, deque, range)):
        return [plain(item) for item in value]
    return _other(value)


def _mapping(value: Mapping[Any, Any]) -> Any:
    keys = [searchable(key) if isinstance(key, str) else json_text(key) for key in value]
    if len(set(keys)) < len(keys):
        return {"$dict": [[plain(key), plain(item)] for key, item in value.items()]}
    return dict(zip(keys, map(plain, value.values()), strict=True))


def _other(value: Any) -> Any:
    if isinstance(value, np.generic):
        number = value.item()
        is_count = isinstance(value, _MOMENTS) and type(number) is int  # of a unit that Python's own do not have
        return str(value) if isinstance(number, np.generic) or type(number) is complex or is_count else plain(number)
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "mM" and value.size:
            return [plain(item) for item in value] if value.ndim else plain(value[()])
        return plain(_listed(value))
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Record):
        return plain(value.fields.get("value") if value.kind == "enum" else value.fields)
    if isinstance(value, Placeholder):
        return searchable(value.text)
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, (date, time)):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return plain(vars(value)) if hasattr(value, "__dict__") else plain(dataclasses.asdict(value))  # type: ignore[arg-type]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            return plain(_listed(as_array(value)))
        except ValueError:
            return _said(value)
    image = sys.modules.get("PIL.Image")
    if image is not None and isinstance(value, image.Image):
        return {"$image": {"mode": value.mode, "size": list(value.size)}}
    return plain(vars(value)) if hasattr(value, "to_dict") else searchable(_said(value))


def _said(value: Any) -> str:
    """Return the text of a value, or its type where it has none: a fraction of thousands of digits."""
    try:
        return str(value)
    except (TypeError, ValueError, RuntimeError):  # also RecursionError, NotImplementedError
        return f"<{type(value).__name__}>"


def _listed(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as lists; one without elements as one list where it would make many."""
    return array.tolist() if array.size or array.ndim < 2 or max(array.shape) <= _MOST_COUNTED else []


def as_array(tensor: Any) -> Any:
    """Return a tensor's values as a NumPy array; types that NumPy lacks become float32, or complex64.

    Raises:
        ValueError: a sparse tensor is far larger than what it holds, or no values can be had of a tensor.
    """
    import torch

    try:
        dense = tensor.detach().cpu()
        if dense.layout is not torch.strided:
            n_held = (dense._values() if dense.layout is torch.sparse_coo else dense.values()).numel()
            if dense.numel() > max(_MOST_COUNTED, 100 * n_held):
                raise ValueError(f"a sparse tensor of {dense.numel()} elements holds {n_held}")
        if dense.dtype is torch.complex32:
            dense = dense.to(torch.complex64)
        elif dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64):
            dense = dense.float()
        dense = dense.to_dense() if dense.layout is not torch.strided else dense
        return dense.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:  # also NotImplementedError: packed, quantized, without values
        raise ValueError(f"a tensor of {tensor.dtype} has no values that NumPy could hold") from error


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_other_keys(value: Any) -> bool:
    """True when a dict in it has keys that are no text: JSON would turn 1 and "1" into the same."""
    if isinstance(value, dict):
        return any(type(key) is not str or _has_other_keys(item) for key, item in value.items())
    return (
        isinstance(value, (list, tuple)) and not _FLAT.issuperset(map(type, value)) and any(map(_has_other_keys, value))
    )
