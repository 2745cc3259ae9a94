"""Telling damage from faults of our own: what a damaged value makes Python run into says nothing of the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from slime_store.database import read
from slime_store.errors import DamagedStoreError, StoreError
from slime_store.repositories.value_types import dangling_references, wrong_values

if TYPE_CHECKING:
    from slime_store.store.handle import StoreHandle

P = ParamSpec("P")
T = TypeVar("T")

MISFITS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, SQLAlchemyError)
"""What values of other types than a column's make Python and SQLAlchemy raise."""


def name_damage(handle: StoreHandle, error: Exception) -> None:
    """Look, after an error that is none of ours, whether the store holds what cannot have been recorded.

    Reads the whole store: only for what should not happen.

    Raises:
        DamagedStoreError: it does; chained to ``error``.
    """
    examined = error.__dict__.setdefault("_examined_stores", set())  # it may pass here again on its way out
    if isinstance(error, StoreError) or not handle.config.is_sqlite or handle.config.url in examined:
        return
    examined.add(handle.config.url)
    try:
        with read(handle.engine) as connection:
            damage = next(chain(wrong_values(connection), dangling_references(connection)), None)
    except StoreError:
        return
    if damage is not None:
        raise DamagedStoreError(handle.config.display_url, damage) from error


@contextmanager
def naming_damage(handle: StoreHandle) -> Iterator[None]:
    """Report what damaged values make the body run into as damage, if it is; what it refuses before it reads is not."""
    before = handle.n_reads
    try:
        yield
    except MISFITS as error:
        if handle.n_reads != before:
            name_damage(handle, error)
        raise


def damage_named(ask: Callable[P, T]) -> Callable[P, T]:
    """Do so in a function whose first argument is a store or a run, also in what it makes of the rows it has read."""

    @wraps(ask)
    def asking(*args: P.args, **kwargs: P.kwargs) -> T:
        handle = getattr(args[0] if args else None, "_handle", None)
        if handle is None:  # an argument that the function itself refuses, or names
            return ask(*args, **kwargs)
        with naming_damage(handle):
            return ask(*args, **kwargs)

    return asking
