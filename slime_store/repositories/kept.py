"""Which contents of a rollout's documents pruning keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from slime_store.mapping.fields import FIELDS, Home
from slime_store.repositories.blobs import digests_in

_LONG_TEXT = re.compile(r'"\$(?:text|str)":\s*\{"blob":\s*"([0-9a-f]{64})"')
_IN_PART = (Home.ARRAY, Home.EXTRA)


def long_texts_in(document: str | None) -> set[str]:
    """Return the digests of a document's long texts."""
    return set(_LONG_TEXT.findall(document or ""))


def kept_of_attributes(extra: str | None) -> set[str]:
    """Return the digests that stay of a sample's ``extra`` document.

    A reward, a label, metadata or a status of an odd type is in there too, and stays with all that is in it; of token
    arrays, and of attributes that only ``extra`` is the home of, long texts stay.
    """
    if extra is None or '"blob"' not in extra:
        return set()
    try:
        attributes = list(_attributes(json.loads(extra)))
    except (ValueError, TypeError):  # damaged: nothing goes that may be one of those
        return digests_in([extra])
    whole = [json.dumps(value) for name, value in attributes if FIELDS.get(name, Home.EXTRA) not in _IN_PART]
    return digests_in(whole) | long_texts_in(extra)


def _attributes(tree: Any) -> Iterable[tuple[str, Any]]:
    """Return names and values.

    Raises:
        ValueError: they are no attributes.
    """
    if not isinstance(tree, dict):
        raise ValueError("no dict")
    if "$dict" not in tree:
        return tree.items()
    return [(name, value) for name, value in tree["$dict"] if type(name) is str]  # where one begins with "$"
