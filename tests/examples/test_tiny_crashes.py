"""Killed by SIGKILL at whatever moment, the example ends with the weights of a run that nobody killed, bit for bit."""

from __future__ import annotations

import copy
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from slime_store import Sample, SampleStore
from slime_store.testing import assert_same
from tests.examples.runs import SMALL, Moment, Training, at, in_rollout, writing_is_held_up


@dataclass(frozen=True)
class Kill:
    """When; and what must be on disk before it comes: groups of the rollout under way, or a whole rollout."""

    moment: Moment
    journalled: int = 0
    stored: int | None = None

    def strike(self, training: Training) -> None:
        training.kill_at(self.moment, lambda: self._settle(training))

    def _settle(self, training: Training) -> None:
        training.wait_for_journal(self.journalled)
        if self.stored is not None:
            training.wait_for_rollout(self.stored)


MOMENTS: dict[str, list[Kill]] = {
    "between rollouts": [Kill(at("rollout trained", 4), stored=4)],
    "twice in the same rollout": [
        Kill(in_rollout(4, 2), journalled=2),
        Kill(in_rollout(4, 4), journalled=4),
    ],
    "late in a rollout": [Kill(in_rollout(4, 5), journalled=5)],
    "before the first checkpoint": [Kill(in_rollout(1, 3), journalled=3)],
    "right after a checkpoint": [Kill(at("checkpoint saved", 5))],
    "before the first group of a rollout is decoded": [Kill(in_rollout(4, 0, "group begun"))],
    "early in a rollout": [Kill(in_rollout(4, 1), journalled=1)],
    "as a group is on its way to the journal": [Kill(in_rollout(4, 3))],
    "as a rollout is on its way to the store": [Kill(at("rollout finished", 4))],
    "while recorded rollouts are handed out": [
        Kill(in_rollout(5, 3), journalled=3),
        Kill(at("rollout finished", 3)),
    ],
    "in the last rollout": [Kill(in_rollout(7, 5), journalled=5)],
    "before the last checkpoint": [Kill(at("rollout trained", 7), stored=7)],
}
_QUICK = 2


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The same training without a store and without a crash."""
    training = Training(tmp_path_factory.mktemp("control"), store=False)
    training.finish()
    return training


def _params(names: list[str]) -> list[Any]:
    quick = list(MOMENTS)[:_QUICK]
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize("name", _params(list(MOMENTS)))
def test_a_killed_run_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path, control: Training) -> None:
    training = Training(tmp_path)
    for kill in MOMENTS[name]:
        kill.strike(training)
    assert_only_the_unfinished_is_generated_again(training)
    assert training.digest == control.digest
    assert_trained_on_the_same(training, control)
    assert_each_sample_names_the_weights_that_generated_it(training)
    with closing(SampleStore.open(training.url, read_only=True)) as store:
        training.copies.assert_loads_back(store.run("demo", create=False))


def test_killed_while_the_journal_writes_it_generates_that_group_again(tmp_path: Path, control: Training) -> None:
    training = Training(tmp_path)
    locks = []

    def moment(event: Any, tally: Any) -> bool:
        if in_rollout(4, 2)(event, tally):
            training.wait_for_journal(2)
            locks.append(writing_is_held_up(training.url))  # the third group's transaction cannot end
        return in_rollout(4, 3)(event, tally)

    training.kill_at(moment)
    locks[0].close()
    assert len(training.resume_point().journalled_groups) == 2
    assert_only_the_unfinished_is_generated_again(training)
    assert training.tally.restarts()[-1].again.groups == 1
    assert training.digest == control.digest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["twice in the same rollout", "between rollouts", "in the last rollout"])
def test_without_a_store_the_same_kills_cost_more(name: str, tmp_path: Path, control: Training) -> None:
    with_store, without = Training(tmp_path / "with"), Training(tmp_path / "without", store=False)
    for kill in MOMENTS[name]:
        kill.strike(with_store)
        without.kill_at(kill.moment)
    with_store.finish()
    without.finish()
    assert without.digest == control.digest  # it costs time, not correctness: the example's own checkpoints are whole
    spared, paid = (training.tally.restarts()[-1] for training in (with_store, without))
    assert paid.adopted.tokens == paid.served.tokens == 0
    assert paid.again.tokens >= paid.lost_without_store.tokens == spared.lost_without_store.tokens > 0
    assert paid.again.groups > SMALL.rollout_batch_size > spared.again.groups
    assert paid.again.tokens - spared.again.tokens >= spared.adopted.tokens + spared.served.tokens > 0


def test_the_comparison_fails_when_the_restart_goes_another_way(tmp_path: Path, control: Training) -> None:
    training = Training(tmp_path)
    MOMENTS["late in a rollout"][0].strike(training)
    training.args = replace(training.args, seed=1)  # the store refuses what another seed recorded
    training.finish()
    assert not training.tally.processes[-1].adopted
    assert training.digest != control.digest


def assert_only_the_unfinished_is_generated_again(training: Training) -> None:
    """Finish the run; of the groups begun before, only those are generated that the store could not have."""
    point = training.resume_point()
    journalled = {group[0].group_index for group in point.journalled_groups}
    training.finish()
    process = training.tally.processes[-1]
    earlier = training.tally.processes[:-1]
    begun = set[int]().union(*(other.begun for other in earlier))
    again = set(process.generated) & begun

    assert process.adopted == {info.rollout_id for info in point.complete}
    assert set(process.served_groups) == journalled
    assert process.counted == len(journalled)
    interrupted = set(process.finished.get(point.next_rollout_id, ()))
    assert again <= interrupted - journalled
    restart = training.tally.restarts()[-1]
    assert restart.again.groups == len(again) <= SMALL.rollout_batch_size - len(journalled)
    if restart.lost_without_store.tokens:
        assert restart.again.tokens < restart.lost_without_store.tokens


def assert_trained_on_the_same(training: Training, control: Training) -> None:
    """The trainer was handed the same samples, but for the engine's versions, which each process counts from 1."""
    assert training.copies.train.keys() == control.copies.train.keys()
    for rollout_id, output in control.copies.train.items():
        groups, expected = copy.deepcopy((training.copies.train[rollout_id].samples, output.samples))
        for sample in _flat(groups) + _flat(expected):
            sample.weight_versions = []
        assert_same(groups, expected)


_VERSIONS = """
    SELECT rollouts.rollout_id, sessions.checkpoint_rollout_id, weight_versions.label
    FROM samples
    JOIN rollouts ON rollouts.id = samples.rollout_pk
    JOIN weight_versions ON weight_versions.id = samples.last_weight_version_pk
    JOIN sessions ON sessions.id = weight_versions.session_pk
    WHERE rollouts.kind = 'train'"""


def assert_each_sample_names_the_weights_that_generated_it(training: Training) -> None:
    """Each process counts versions from 1 at its checkpoint, so one label means other weights in another process."""
    with closing(sqlite3.connect(training.url)) as database:
        rows = database.execute(_VERSIONS).fetchall()
    assert len(rows) == SMALL.num_rollout * SMALL.rollout_batch_size * SMALL.n_samples_per_prompt
    wrong = {row for row in rows if int(row[2]) != row[0] - row[1]}
    assert not wrong, f"(rollout, checkpoint of the version's session, label): {sorted(wrong)}"


def _flat(groups: list[list[Sample]]) -> list[Sample]:
    return [sample for group in groups for sample in group]
