"""The plug-in in the test's own process: settings as a user's YAML file gives them, rollouts given as values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, SampleStore
from slime_store.plugins.intercept import activate
from slime_store.plugins.session import forget_sessions
from tests.plugins import given
from tests.plugins.fake_framework.train import make_args

Args = Callable[..., Namespace]


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Iterator[None]:
    """The plug-in's memory is one process's; each test begins without any."""
    yield
    forget_sessions()
    activate(None)
    given.reset()


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Args:
    """Arguments of the framework, with settings for a store in the test's directory."""
    for name in ("URL", "RUN", "MODE", "ROLLOUT_FUNCTION_PATH", "EVAL_FUNCTION_PATH", "DATA_SOURCE_PATH"):
        monkeypatch.delenv(f"SLIME_STORE_{name}", raising=False)
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setattr("slime_store.plugins.spool.own_directory", lambda: tmp_path)

    def make(**options: Any) -> Namespace:
        return make_args(tmp_path, **options)

    return make


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    """A run as another process would see it, when what was handed over is stored."""
    stores = []

    def open_run(name: str = "run") -> Run:
        forget_sessions()
        store = SampleStore.open(tmp_path / "store.db")
        stores.append(store)
        return store.run(name, create=False)

    yield open_run
    for store in stores:
        store.close()
