"""Plain keys in the place of others: as many, each with a hash."""

from __future__ import annotations

from collections import Counter
from typing import Any


def apart(keys: list[Any], plain: list[Any]) -> list[Any]:
    """Return the plain keys, texts of their own for those that would be equal to another; the others stay as they are.

    Args:
        keys: what the keys are, no two equal.
        plain: what is to be written for each, all with a hash; the key itself where it can stay.
    """
    n_equal = Counter(plain)
    stays = [each is key or n_equal[each] == 1 for key, each in zip(keys, plain, strict=True)]
    taken = {each for each, stay in zip(plain, stays, strict=True) if stay}
    made = []
    for key, each, stay in zip(keys, plain, stays, strict=True):
        made.append(each if stay else _new_text(text_of(key), taken))
        taken.add(made[-1])
    return made


def has_hash(value: Any) -> bool:
    """Whether a value can be a key."""
    try:
        hash(value)
    except Exception:  # of a class's own code
        return False
    return True


def text_of(value: Any) -> str:
    """Return what a value looks like, whatever its own code does."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _new_text(text: str, taken: set[Any]) -> str:
    new, number = text, 1
    while new in taken:
        number += 1
        new = f"{text} (key {number})"
    return new
