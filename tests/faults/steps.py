"""The numbered steps of whatever a process does to a store: system calls for side files, statements, commit.

Armed only in a test's child process, from outside: the product has no hook for it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Engine, event

from slime_store import SampleStore
from slime_store.blobs import directory, syncing
from slime_store.repositories import aggregates, blobs, inserts, samples
from tests.faults.given import die

_CALLS = ("fsync", "rename", "link", "open", "close", "unlink")
"""System calls that the room of side files makes by their names in ``os``."""


class Steps:
    """Counts steps and does something at one of them.

    Args:
        at: which step; None: only count.
        do: what happens there; the process dies if nothing else is said.
    """

    def __init__(self, at: int | None = None, do: Callable[[], Any] = die) -> None:
        self.names: list[str] = []
        self._at, self.do = at, do

    def step(self, name: str) -> None:
        """Be at the next step."""
        self.names.append(name)
        if len(self.names) - 1 == self._at:
            self.do()

    def arm(self, store: SampleStore) -> None:
        """Count from now on, in this process and for this store."""
        engine = store._handle.engine
        event.listen(Engine, "before_cursor_execute", lambda *args: self.step(f"before {_short(args[2])}"))
        event.listen(Engine, "after_cursor_execute", lambda *args: self.step(f"after {_short(args[2])}"))
        dialect: Any = engine.dialect
        dialect.do_commit = self._around("commit", dialect.do_commit)
        dialect.do_rollback = self._around("rollback", dialect.do_rollback)
        for module in (samples, blobs, aggregates, inserts):
            if hasattr(module, "insert_rows"):
                setattr(module, "insert_rows", self._around("bulk insert", module.insert_rows))  # noqa: B010
        calls = {name: self._around(name, getattr(os, name)) for name in _CALLS}
        for module in (directory, syncing):
            setattr(module, "os", SimpleNamespace(**{**vars(os), **calls}))  # noqa: B010
            setattr(module, "open", self._open)  # noqa: B010
        unlink, mkdir = Path.unlink, Path.mkdir
        Path.unlink = self._around("remove a file", unlink)  # type: ignore[method-assign]
        Path.mkdir = self._around("make a directory", mkdir)  # type: ignore[method-assign]

    def _around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **options: Any) -> Any:
            self.step(f"before {name}")
            result = call(*args, **options)
            self.step(f"after {name}")
            return result

        return stepping

    def _open(self, path: Path, mode: str) -> Any:
        self.step("before a file is made")
        made = _HalfwayFile(path, mode.replace("b", ""), self)
        self.step("after a file is made")
        return made


class _HalfwayFile(io.FileIO):
    """A file whose writing has a step in the middle."""

    def __init__(self, path: Path, mode: str, steps: Steps) -> None:
        super().__init__(path, mode)
        self._steps = steps

    def write(self, data: Any) -> int:
        """Write in two halves."""
        half = len(data) // 2
        super().write(data[:half])
        self._steps.step("in the middle of a file")
        return half + super().write(data[half:])


def _short(statement: str) -> str:
    return " ".join(statement.split()[:3])
