"""How ``assert_same`` says where two values differ and in what."""

from __future__ import annotations

import reprlib
from typing import Any

# One step from a value to a part of it: an index, a dict key in a 1-tuple, or text used as it is.
Step = int | tuple[Any] | str
Child = tuple[Step, Any, Any]  # the step, the actual part, the expected part
_CONTEXT = 24  # characters shown on each side of the first difference of two long texts

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120


class Mismatch(Exception):
    """Two values differ: a finding, which never leaves this package.

    Args:
        text: in what they differ.
        steps: the way from the values being compared to the parts that differ.
    """

    def __init__(self, text: str, *steps: Step) -> None:
        super().__init__(text, *steps)
        self.text, self.steps = text, steps


class Place:
    """A place inside a value: a step from the place around it. Its text is made only when needed."""

    __slots__ = ("outer", "step")

    def __init__(self, step: Step, outer: Place | None = None) -> None:
        self.step, self.outer = step, outer

    def __str__(self) -> str:
        """Return the whole way, e.g. ``value.samples[3][1].metadata['a'][2]``."""
        steps: list[str] = []
        place: Place | None = self
        while place is not None:  # a loop: values are nested deeper than Python recurses
            steps.append(_show_step(place.step))
            place = place.outer
        return "".join(reversed(steps))


def _show_step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return step if isinstance(step, str) else f"[{show(step[0])}]"


def show(value: Any) -> str:
    """Return a repr of bounded length that never raises."""
    try:
        return _SHORT.repr(value)
    except Exception:  # a repr is foreign code, and int refuses to print thousands of digits
        return hex(value) if isinstance(value, int) else f"<{type(value).__name__}>"


def versus(actual: str, expected: str) -> str:
    """Return ``actual != expected``, and why where they read the same: NaNs do."""
    return f"{actual} != {expected}" + (", which differ in their bits or parts" if actual == expected else "")


def unequal(actual: Any, expected: Any, *steps: Step) -> Mismatch:
    """Return the finding that two values of any types are not the same."""
    kind, other = type(actual), type(expected)
    if kind is other and kind in (str, bytes) and max(len(actual), len(expected)) > 2 * _CONTEXT:
        pairs = enumerate(zip(actual, expected, strict=False))
        start = next((at for at, pair in pairs if pair[0] != pair[1]), min(len(actual), len(expected)))
        window = slice(max(0, start - _CONTEXT), start + _CONTEXT)
        sizes = f"{kind.__name__} of {len(actual)} != {len(expected)}"
        return Mismatch(f"{sizes}, at {start}: {actual[window]!r} != {expected[window]!r}", *steps)
    names = kind.__name__, other.__name__
    if kind is not other and names[0] == names[1]:
        names = f"{kind.__module__}.{kind.__qualname__}", f"{other.__module__}.{other.__qualname__}"
    shown = [
        name if value is None else f"{name} {show(value)}"
        for name, value in zip(names, (actual, expected), strict=True)
    ]
    return Mismatch(versus(*shown), *steps)
