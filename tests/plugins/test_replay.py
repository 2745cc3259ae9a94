"""Replay mode hands recorded rollouts to training, and writes no sample."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from slime_store import Run, SampleStore
from slime_store.errors import RolloutNotFoundError
from slime_store.plugins.session import forget_sessions
from slime_store.testing import assert_same
from slime_store.types import RolloutFnTrainOutput
from tests.plugins import given
from tests.plugins.fake_framework.plugin import StoreSource, generate_rollout
from tests.plugins.given import dataset, group

Args = Callable[..., Namespace]
Stored = Callable[..., Run]


@pytest.fixture
def recorded(tmp_path: Path) -> None:
    """Rollouts 2, 3 and 7 of five groups each, and an eval at 3."""
    with SampleStore.open(tmp_path / "store.db") as store:
        run = store.run("run", config={"lr": 1.0})
        for number in (2, 3, 7):
            groups = [group(5 * number + i) for i in range(5)]
            run.record_train(number, RolloutFnTrainOutput(groups, {"loss": 0.5}))
        run.record_eval(3, {"math": dataset()})


def _counts(tmp_path: Path) -> dict[str, int]:
    forget_sessions()
    with SampleStore.open(tmp_path / "store.db", read_only=True) as store, store._handle.reading() as connection:
        tables = sa.inspect(connection).get_table_names()
        return {t: connection.execute(sa.text(f'select count(*) from "{t}"')).scalar() or 0 for t in tables}


def test_rollouts_and_evals_are_served_by_step_and_nothing_is_written(
    args: Args, tmp_path: Path, recorded: None
) -> None:
    before = _counts(tmp_path)
    options = args(slime_store_mode="replay", slime_store_rollout_function_path=given.PATH)
    source = StoreSource(options)
    source.load(1)
    for number in (2, 3):
        output = generate_rollout(options, number, source)
        assert_same(output.samples, [group(5 * number + i) for i in range(5)])
        assert output.metrics == {"loss": 0.5, "store/replayed": 1}
        source.save(number)
    assert_same(generate_rollout(options, 3, source, evaluation=True).data, {"math": dataset()})
    assert given.calls == []
    assert source.get_samples(4) == []
    assert len(source) == 15
    assert _counts(tmp_path) == before
    with SampleStore.open(tmp_path / "store.db") as store:
        assert store.runs()[0].config == {"lr": 1.0}


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_rollout_that_is_not_recorded_is_refused_with_the_nearest_ones(
    evaluation: bool, args: Args, recorded: None
) -> None:
    options = args(slime_store_mode="replay")
    with pytest.raises(RolloutNotFoundError, match="3"):
        generate_rollout(options, 5, StoreSource(options), evaluation=evaluation)


@pytest.mark.parametrize(("n", "kept"), [(1, [0]), (2, [0, 4]), (3, [0, 1, 4]), (5, [0, 1, 2, 3, 4]), (9, range(5))])
def test_j5_a_part_of_the_groups_is_the_head_and_the_tail(n: int, kept: Any, args: Args, recorded: None) -> None:
    options = args(slime_store_mode="replay", slime_store_replay_groups=n)
    output = generate_rollout(options, 2, StoreSource(options))
    assert [g[0].group_index - 10 for g in output.samples] == list(kept)


def test_j5_two_replays_are_equal_and_independent_and_leave_the_file_alone(
    args: Args, tmp_path: Path, recorded: None
) -> None:
    options = args(slime_store_mode="replay")
    content = (tmp_path / "store.db").read_bytes()
    first = generate_rollout(options, 2, StoreSource(options))
    first.samples[0][0].tokens.append(99)
    first.samples[0][0].loss_mask = [0]
    second = generate_rollout(options, 2, StoreSource(options))
    assert_same(second.samples, [group(10 + i) for i in range(5)])
    forget_sessions()
    assert (tmp_path / "store.db").read_bytes() == content


def test_another_runs_rollouts_are_replayed_into_a_new_run_that_notes_them(
    args: Args, tmp_path: Path, recorded: None, stored: Stored
) -> None:
    before = _counts(tmp_path)
    options = args(slime_store_mode="replay", slime_store_run="second", slime_store_replay_run="run")
    source = StoreSource(options)
    assert len(source) == 15
    generate_rollout(options, 7, source)
    generate_rollout(options, 7, source)
    after = _counts(tmp_path)
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {"runs", "sessions", "adoptions"}
    assert after["adoptions"] == 1
    assert stored("second").rollouts() == []
