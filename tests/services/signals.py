"""Signals that come at a certain line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def handled(handler: Callable[[], Any]) -> Iterator[None]:
    """Have SIGTERM do something."""
    before = signal.signal(signal.SIGTERM, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def once_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, what: Callable[[], Any]) -> None:
    """Send a signal the first time that a function is called, after doing something."""
    function, done = getattr(owner, name), []

    def called(*args: Any, **kwargs: Any) -> Any:
        if not done:
            done.append(True)
            what()
            signal.raise_signal(signal.SIGTERM)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)


@contextmanager
def not_hanging(seconds: int) -> Iterator[None]:
    """End the main thread's work with an error when it takes so long, be it in a signal handler."""

    def hangs(*_: Any) -> None:
        pytest.fail("it hangs")  # no Exception, which may be let pass

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
