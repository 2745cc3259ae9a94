"""A data source's state is recorded whole, or said to be missing; it never costs the samples."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run
from slime_store.plugins.session import session_of
from slime_store.plugins.state import capture, restore
from slime_store.testing import assert_same
from tests.plugins import given
from tests.plugins.fake_framework.data_source import BufferedSource
from tests.plugins.fake_framework.plugin import FAKE, StoreSource, generate_rollout
from tests.plugins.given import group

Args = Callable[..., Namespace]
HERE = "tests.plugins.test_state"


class CursorOfItsOwn:
    """Has ``metadata`` as slime's sources have, and a cursor that nobody else knows."""

    def __init__(self, args: Namespace) -> None:
        self.metadata: dict[str, Any] = {}
        self.position = 0

    def load(self, rollout_id: int | None = None) -> None:
        pass


class FailingState(BufferedSource):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("the user's own fault")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError


class OpenFile(BufferedSource):
    def __init__(self, args: Namespace) -> None:
        super().__init__(args)
        self.metadata["file"] = open


class DequeBuffer(BufferedSource):
    def __init__(self, args: Namespace) -> None:
        super().__init__(args)
        self.buffer = deque()  # type: ignore[assignment]


def _record(options: Namespace, n: int = 3) -> StoreSource:
    source = StoreSource(options)
    source.load(-1)
    for number in range(n):
        given.will_return(number, [group(number)])
        assert len(generate_rollout(options, number, source).samples) == 1
    session_of(options, FAKE).flush()
    return source


@pytest.mark.parametrize("name", ["CursorOfItsOwn", "FailingState", "OpenFile"])
def test_rollouts_without_a_whole_state_are_kept_and_are_not_resumed_from(
    name: str, args: Args, stored: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = args(slime_store_data_source_path=f"{HERE}.{name}", slime_store_rollout_function_path=given.PATH)
    _record(options)
    run = stored()
    assert_same(run.load_train(1).samples, [group(1)])
    point = run.resume(checkpoint_rollout_id=0)
    assert point.complete == ()
    assert point.refused == "rollout 1 was recorded without the data source's state"
    assert "state" in caplog.text
    again = StoreSource(options)
    again.load(0)
    assert generate_rollout(options, 1, again).metrics.get("store/adopted") is None


def test_a_buffer_of_another_kind_is_kept_too(args: Args, tmp_path: Path) -> None:
    options = args(n_prompts=4)
    source, other = DequeBuffer(options), DequeBuffer(options)
    source.buffer.append([given.finished(3, 6)])
    state = capture(source)
    assert state is not None
    restore(other, state)
    assert type(other.buffer) is deque
    assert_same(list(other.buffer), list(source.buffer))


def test_groups_to_be_handed_out_again_survive_an_error_of_the_source(args: Args) -> None:
    options = args(slime_store_carry_over=True)
    source = StoreSource(options)
    source.put_back({**(capture(source._inner) or {}), "in_flight": [group(7), group(8)]})
    inner, source._inner = source._inner, None

    class Broken:
        def get_samples(self, num_samples: int) -> Any:
            raise OSError("not now")

    source._inner = Broken()
    with pytest.raises(OSError, match="not now"):
        source.get_samples(3)
    source._inner = inner
    assert [g[0].group_index for g in source.get_samples(3)] == [7, 8, 0]
