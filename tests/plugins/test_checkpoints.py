"""Checkpoints and what was handed out are noted, at once or later, and hold up nothing when they cannot be."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.errors import StoreBusyError, StoreFullError
from slime_store.interchange import import_path
from slime_store.plugins import session as sessions
from slime_store.store.handle import StoreHandle
from slime_store.store.recovery import Recovery
from slime_store.store.sessions import _registry
from slime_store.types import ResumePoint
from tests.plugins import given
from tests.plugins.fake_framework.plugin import StoreSource, generate_rollout
from tests.plugins.given import group

Args = Callable[..., Namespace]


@pytest.fixture
def options(args: Args) -> Namespace:
    return args(slime_store_rollout_function_path=given.PATH)


def train(options: Namespace, start: int, numbers: Iterable[int], saves: tuple[int, ...] = ()) -> StoreSource:
    source = StoreSource(options)
    source.load(start)
    for number in numbers:
        given.will_return(number, [group(number)])
        generate_rollout(options, number, source)
        if number in saves:
            source.save(number)
    return source


def resumed(tmp_path: Path, checkpoint: int) -> ResumePoint:
    sessions.forget_sessions()
    with SampleStore.open(tmp_path / "store.db") as store:
        return store.run("run", create=False).resume(checkpoint_rollout_id=checkpoint)


def busy(*_: Any) -> None:
    raise StoreBusyError("store.db", "another writer did not finish in time")


def test_a_checkpoint_that_cannot_be_noted_is_noted_before_the_next_rollout_is_recorded(
    options: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(options, -1, range(6), (2, 5))
    sessions.forget_sessions()
    options.slime_store_max_adopted = 0
    source = train(options, 2, range(3, 6))
    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "record_checkpoint", busy)
        source.save(5)
    given.will_return(6, [group(6)])
    generate_rollout(options, 6, source)
    assert [info.session for info in resumed(tmp_path, 5).complete] == [2]


def test_a_checkpoint_of_no_number_holds_no_record_up(options: Namespace, tmp_path: Path) -> None:
    source = train(options, -1, range(2))
    source.save("last")
    given.will_return(2, [group(2)])
    generate_rollout(options, 2, source)
    assert [info.rollout_id for info in resumed(tmp_path, -1).complete] == [0, 1, 2]
    assert not list((tmp_path / "spool").glob("*"))


def test_a_checkpoint_that_waits_to_be_noted_when_training_goes_back_is_of_the_session_before(
    options: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = train(options, -1, range(4), (1,))
    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "record_checkpoint", busy)
        source.save(3)
    source.load(1)
    given.will_return(2, [group(2)])
    generate_rollout(options, 2, source)
    point = resumed(tmp_path, 3)
    assert point.state is not None and point.refused is None


def test_what_is_spooled_behind_rollouts_that_were_handed_out_is_handed_out_behind_them(
    options: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: StoreHandle, operation: str) -> Any:
        if self.config.path == tmp_path / "store.db":
            raise StoreFullError(operation, "no space left")
        return writing(self, operation)

    train(options, -1, range(5), (2,))
    sessions.forget_sessions()
    writing = StoreHandle.writing
    monkeypatch.setattr(_registry, "process", "f" * 32)
    with monkeypatch.context() as patch:
        patch.setattr(StoreHandle, "writing", full)
        train(options, 2, range(3, 7), (5,))
        sessions.forget_sessions()
    monkeypatch.setattr(_registry, "process", "e" * 32)
    [spool] = (tmp_path / "spool").glob("*.db")
    with SampleStore.open(tmp_path / "store.db") as store:
        import_path(store.run("run"), spool)
    assert [info.rollout_id for info in resumed(tmp_path, 2).complete] == [3, 4, 5, 6]
