"""A file system that fails where a test says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def let_listing_fail(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Let neither ``place`` nor a directory below it be listed."""

    def fail_in(list_it: Any) -> Any:
        def listed(path: Any = ".") -> Any:
            if place in (Path(path), *Path(path).parents):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            return list_it(path)

        return listed

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, fail_in(getattr(os, name)))
