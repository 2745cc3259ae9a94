"""A text of a value that is the same in every process, for telling whether two processes were given the same."""

from __future__ import annotations

import hashlib
import re
import sys
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def stable_text(value: Any) -> str:
    """Return a text that says what a value is, without the order of sets and without addresses.

    An image is told by its pixels, another object by its ``repr``.
    """
    if isinstance(value, (str, int, float, bytes, type(None))):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{stable_text(key)}: {stable_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (set, frozenset)):
        return "set" + str(sorted(map(stable_text, value)))
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + "(" + ", ".join(map(stable_text, value)) + ")"
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(value, pillow.Image):
        pixels = hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()
        return f"image({value.mode}, {value.size}, {pixels})"
    return _ADDRESS.sub("", repr(value))
