"""Whether metadata meets a filter, and what its document must contain when it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from slime_store.codecs.documents import is_clean

_BOOLS = (bool, np.bool_)
_LONGEST = 1000  # characters of a wanted text that are looked for: longer ones may be stored elsewhere
_CHOICES = (tuple, set, frozenset)


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
    if isinstance(value, _BOOLS) is not isinstance(wanted, _BOOLS):
        return False
    try:
        return bool(value == wanted)
    except (ValueError, RuntimeError):  # arrays and tensors have no single truth
        return False
