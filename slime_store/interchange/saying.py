"""Texts for people about values that strangers made: short, whatever the value is, and never an error of their own."""

from __future__ import annotations

import reprlib

MOST_CHARACTERS = 1000
"""Of one reason or note; what is longer was made so."""


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 200

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # more digits than Python, or its user, allows in a text
            return f"<an integer of {x.bit_length()} bits>"


def shown(value: object) -> str:
    """Return a value's ``repr``, without the middle of what is long in it."""
    try:
        return _BRIEF.repr(value)
    except Exception:  # of whatever its class does
        return f"<{type(value).__name__}>"


def told(error: BaseException) -> str:
    """Return what an error says, after the name of its type."""
    try:
        return cut(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text itself, or its beginning and its end around dots."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


_BRIEF = _Brief()
