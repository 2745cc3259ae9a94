"""What a rule for an allowed name is, and the checks that rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from slime_store.interchange.restricted.opcodes import BadPickle
from slime_store.interchange.saying import cut

T = TypeVar("T")

MAX_DIMENSIONS = 64
"""Of numpy's arrays and torch's tensors. The product of many large sizes takes quadratic time."""
_MAX_INTEGER_BITS = 1 << 14
"""Of an integer that is computed with: dividing long ones takes quadratic time."""


@dataclass(frozen=True)
class Rule:
    """How the value of one allowed name is made, from parts that are made already.

    A part for which there is no function must not occur.

    Attributes:
        make: takes the arguments of the call and checks them. None: the name is never called.
        items: takes the value and what is appended to it, and returns the value.
        pairs: takes the value and what is set in it by key, and returns the value.
        state: takes the value and its state, and returns the value.
        needs_state: a call without state is refused.
        constant: what the bare name stands for, or None: it only occurs in calls.
    """

    make: Callable[..., Any] | None = None
    items: Callable[[Any, list[Any]], Any] | None = None
    pairs: Callable[[Any, list[tuple[Any, Any]]], Any] | None = None
    state: Callable[[Any, Any], Any] | None = None
    needs_state: bool = False
    constant: Any = None


def require(value: Any, kind: type[T], what: str) -> T:
    """Return a value that is exactly of this type; BadPickle otherwise."""
    if type(value) is not kind:
        refuse(f"{what} that is a {type(value).__name__}")
    return value


def sizes(value: Any, what: str) -> tuple[int, ...]:
    """Return a tuple of whole numbers that are not negative, given as any sequence of them; BadPickle otherwise."""
    if not isinstance(value, (tuple, list)) or not all(type(n) is int and 0 <= n < 2**63 for n in value):
        refuse(f"{what} that is no tuple of sizes")
    return tuple(value)


def dimensions(value: Any, what: str) -> tuple[int, ...]:
    """Return the sizes or the strides of an array; BadPickle if there are more than arrays have."""
    if isinstance(value, (tuple, list)) and len(value) > MAX_DIMENSIONS:
        refuse(f"{what} of {len(value)} dimensions")
    return sizes(value, what)


def integer(value: Any, what: str) -> int:
    """Return an integer that is short enough to be computed with; BadPickle otherwise."""
    if require(value, int, what).bit_length() > _MAX_INTEGER_BITS:
        refuse(f"{what} of integers that are too long")
    return int(value)


def names(value: Any, what: str) -> dict[str, Any]:
    """Return a dict whose keys are plain attribute names; BadPickle otherwise."""
    if type(value) is not dict or not all(type(key) is str and not key.startswith("__") for key in value):
        refuse(f"{what} that is no dict of attributes")
    return value


def refuse(what: str) -> NoReturn:
    """Raise BadPickle."""
    raise BadPickle(f"its pickle has {cut(what)}")
