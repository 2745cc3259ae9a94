"""Telling objects that they are now in a forked child, without keeping them alive."""

from __future__ import annotations

import os
import weakref
from typing import Protocol, TypeVar


class Forked(Protocol):
    """Has locks or threads that a child must not take over from its parent."""

    def after_fork(self) -> None:
        """Start afresh in the child."""


T = TypeVar("T")

_living: weakref.WeakSet[Forked] = weakref.WeakSet()


def tell_after_fork(thing: Forked) -> None:
    """Call ``thing.after_fork()`` in every child that is forked while the thing lives."""
    _living.add(thing)


def members(things: weakref.WeakSet[T]) -> list[T]:
    """Return what a set holds now. Walking one is Python's own code, which fails when another thread adds to it."""
    while True:
        try:
            return list(things)
        except RuntimeError:
            pass


def _tell_all() -> None:
    for thing in members(_living):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)
