"""Context managers that an interrupt cannot leave open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def closed_if_interrupted(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Make a context manager of a generator, like `contextlib.contextmanager`, that ends when its entry is interrupted.

    The standard library's is entered by a function of Python: Ctrl-C, or what a signal handler raises, may come when
    the generator has done its part and the ``with`` knows nothing of it yet. Then nobody leaves it, and what it holds,
    a transaction with its locks, lasts as long as the traceback: in an interactive session until the next error. The
    same where it is left; but for the one step before the first line of the function that leaves it.
    """
    make: Callable[P, Any] = contextmanager(function)

    @wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Closed(make(*args, **kwargs))

    return made


class _Closed(AbstractContextManager[Any]):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __enter__(self) -> Any:
        try:
            return self._inner.__enter__()
        except BaseException:
            self._inner.gen.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return bool(self._inner.__exit__(kind, error, traceback))
        except BaseException:
            self._inner.gen.close()
            raise
