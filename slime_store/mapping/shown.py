"""Exact documents as people read them: plain JSON, and the texts in it. Nothing is decoded into objects."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from slime_store.codecs.documents import DocumentDecoder
from slime_store.errors import BlobMissingError
from slime_store.mapping.text import searchable, shown_int

Payload = Callable[[str], bytes]
"""Gives the bytes of a blob by its name."""

_MOST_COUNTED = 1 << 16
"""Elements to which a range is written out."""
_LISTS = frozenset({"$tuple", "$set", "$frozenset", "$torch.size"})
_MAPPINGS = frozenset({"$ordereddict", "$counter", "$namespace"})
_NUMBERS = frozenset({int, float, bool, str})  # texts for those that are not finite
_TEXTS = frozenset({"$str", "$text"})
_AS_THEY_ARE = frozenset({"$np.str", "$date", "$decimal", "$uuid", "$torch.dtype", "$torch.device"})


def shown(tree: Any, payload: Payload | None = None) -> Any:
    """Return what a parsed document says, in plain JSON values.

    Tuples and sets become lists, and ranges, very long ones text; dicts of every kind become dicts with text as keys,
    or ``{"$dict": [[key, value], ...]}`` where two keys would be the same; NaN and infinities become the
    texts ``"nan"``, ``"inf"``, ``"-inf"``, integers of thousands of digits a hexadecimal one; enum members become their
    value, dataclasses their fields; text is ``searchable``. What plain JSON cannot say (arrays, tensors, images,
    bytes), lists of numbers that are kept as blobs, and without ``payload`` texts that are, stay as they are stored.

    Raises:
        Exception: of many kinds, when the document is damaged.
    """
    if isinstance(tree, list):
        return [shown(item, payload) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next(iter(tree)) if len(tree) == 1 else ""
    if tag[:1] != "$":
        return {key: shown(value, payload) for key, value in tree.items()}
    body = tree[tag]
    if tag in _TEXTS:
        return _text(body, payload) if "data" in body or payload is not None else tree
    if tag in _LISTS or tag in _MAPPINGS or tag in _AS_THEY_ARE:
        return shown(body, payload)
    if tag == "$dict":
        return _pairs(body, payload)
    if tag in ("$defaultdict", "$path"):
        return shown(body[1], payload)
    if tag == "$deque":
        return shown(body[0], payload)
    if tag == "$enum":
        return shown(body["value"], payload) if "value" in body else tree
    if tag in ("$dataclass", "$namedtuple"):
        return _pairs(body["fields"], payload)
    if tag == "$float":
        return _float(body)
    if tag == "$int":
        return shown_int(int(body, 16))
    if tag == "$np":
        return _number(tree)
    if tag == "$range":
        return _range(tree)
    if tag == "$list" and "data" in body:
        return _numbers(tree)
    return tree


def shown_text(value: Any) -> str | None:
    """Return a shown value, or a number, as one text: text as it is, None as None, anything else as its JSON."""
    if isinstance(value, float):
        value = _finite(value)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def texts_in(tree: Any, payload: Payload) -> Iterator[str]:
    """Yield every text in a parsed document, long ones and unclean ones included, but no key of a dict."""
    stack = [shown(tree, payload)]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, dict) and list(value) == ["$dict"] and isinstance(value["$dict"], list):
            stack += [item for _, item in value["$dict"]]
        elif isinstance(value, dict) and not (len(value) == 1 and next(iter(value))[:1] == "$"):
            stack += value.values()


def _text(body: dict[str, Any], payload: Payload | None) -> str:
    data = base64.b64decode(body["data"]) if "data" in body or payload is None else payload(body["blob"])
    return searchable(bytes(data).decode("utf-8", "surrogatepass"))


def _pairs(body: list[Any], payload: Payload | None) -> dict[str, Any]:
    pairs = [[shown(key, payload), shown(value, payload)] for key, value in body]
    made = {_key(key): value for key, value in pairs}
    return made if len(made) == len(pairs) else {"$dict": pairs}


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def _float(body: str) -> Any:
    if body in ("nan", "inf", "-inf"):
        return body
    return _finite(struct.unpack(">d", bytes.fromhex(body))[0])


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _number(tree: dict[str, Any]) -> Any:
    """Return a numpy scalar as a plain number, or as it is stored when it is none (a date, a complex number)."""
    value = _documents.document(json.dumps(tree))
    number = None if isinstance(value, (np.datetime64, np.timedelta64)) else _plain_number(value)
    return number if type(number) in _NUMBERS else tree


def _numbers(tree: dict[str, Any]) -> Any:
    """Return a list of numbers that is stored in the document, or as it is stored when they are none."""
    numbers = list(map(_plain_number, _documents.document(json.dumps(tree))))
    return numbers if _NUMBERS.issuperset(map(type, numbers)) else tree


def _range(tree: dict[str, Any]) -> Any:
    counted = _documents.document(json.dumps(tree))
    if not counted[_MOST_COUNTED:]:
        return list(map(shown_int, counted))
    try:
        return str(counted)
    except ValueError:  # of numbers of thousands of digits
        return "<range>"


def _plain_number(value: Any) -> Any:
    """Return a number of Python for one of numpy, and a text for one that is not finite."""
    value = value.item() if isinstance(value, np.generic) else value
    return _finite(value) if type(value) is float else value


class _NoBlobs:
    def get(self, name: str) -> bytes:
        raise BlobMissingError(name)


_documents = DocumentDecoder(_NoBlobs())
