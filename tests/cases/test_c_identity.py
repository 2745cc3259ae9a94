"""Section C of the cases: whose number is whose, groups, nesting, empty things, snapshots."""

from __future__ import annotations

import copy
import math
import threading
from collections import OrderedDict, defaultdict
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from slime_store.blobs import PayloadWriter
from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.types import iter_leaf_samples
from tests.cases.trips import found
from tests.services.tables import row, rows, value

# -- C1, C2: numbers ---------------------------------------------------------------------------------


def test_c1_the_samples_own_rollout_id_is_untouched(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(12, [[Sample(rollout_id=each) for each in (None, 3000, 3000, 3001)]])
    loaded = loaded_train(store_url, 12)
    assert [sample.rollout_id for sample in loaded.samples[0]] == [None, 3000, 3000, 3001]
    assert value(store_url, "SELECT rollout_id FROM rollouts") == 12
    executions = rows(store_url, "SELECT execution_id FROM samples ORDER BY position")
    assert executions == [(None,), (3000,), (3000,), (3001,)]


def test_c2_indexes_may_repeat_and_may_be_missing(store_url: str) -> None:
    groups = [
        [Sample(response="a"), Sample(response="b")],
        [Sample(response="c")],
        [Sample(index=5, group_index=1, response=each) for each in "def"],
        [Sample(index=5, group_index=1, response="g")],
    ]
    with run_of(store_url) as run:
        info = run.record_train(0, groups)
    assert (info.n_groups, info.n_samples) == (4, 7)
    assert_same(loaded_train(store_url, 0).samples, groups)
    stored = rows(store_url, "SELECT position, first_position, n_samples, group_index FROM sample_groups ORDER BY 1")
    assert stored == [(0, 0, 2, None), (1, 2, 1, None), (2, 3, 3, 1), (3, 6, 1, 1)]


def test_c2_a_flat_list_has_one_group_for_each_run_of_a_group_index_and_singletons_without(store_url: str) -> None:
    samples = [Sample(group_index=each, index=i) for i, each in enumerate([0, 0, 1, 1, None, None, 0])]
    with run_of(store_url) as run:
        assert run.record_train(0, samples).n_groups == 5
    assert_same(loaded_train(store_url, 0).samples, samples)
    assert rows(store_url, "SELECT n_samples FROM sample_groups ORDER BY position") == [(2,), (2,), (1,), (1,), (1,)]


def test_c2_two_datasets_may_count_alike(store_url: str) -> None:
    output = make_eval_output({"math": 2, "code": 2})
    output.data["compact"] = {"samples": [make_sample(0, response=each) for each in "abc"]}
    with run_of(store_url) as run:
        info = run.record_eval(3, output)
    assert (info.n_groups, info.n_samples) == (0, 11)  # an eval has datasets, not groups
    loaded = loaded_eval(store_url, 3)
    assert_same(loaded, output)
    assert [sample.index for sample in loaded.data["code"]["samples"]] == [0, 1, 2, 3]
    assert found(store_url, dataset="code") == [0, 1, 2, 3]
    assert found(store_url, dataset="compact") == [0, 0, 0]


# -- C3: nesting ---------------------------------------------------------------------------------------


def test_c3_fan_out_and_ragged_groups_keep_their_nesting(store_url: str) -> None:
    s = [make_sample(i) for i in range(6)]
    groups: list[Any] = [[s[0], s[1]], [[s[2], s[3]], [s[4]]], [s[5]]]
    with run_of(store_url) as run:
        info = run.record_train(1, groups)
    assert (info.n_groups, info.n_samples, info.n_trajectories) == (3, 6, 5)
    loaded = loaded_train(store_url, 1)
    assert_same(loaded.samples, groups)
    assert [sample.index for sample in iter_leaf_samples(loaded.samples)] == [0, 1, 2, 3, 4, 5]
    assert found(store_url) == [0, 1, 2, 3, 4, 5]
    places = "SELECT group_position, sample_position, segment_position FROM samples ORDER BY position"
    assert rows(store_url, places) == [(0, 0, None), (0, 1, None), (1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, None)]


def test_c3_siblings_can_be_counted_once(store_url: str) -> None:
    split = [Sample(reward=1.0, rollout_id=9) for _ in range(3)]
    with run_of(store_url) as run:
        run.record_train(0, [[split, [Sample(reward=0.0)]]])
    per_execution = (
        "SELECT avg(reward), count(*) FROM (SELECT group_position, sample_position, avg(reward) AS reward"
        " FROM samples GROUP BY group_position, sample_position) executions"
    )
    assert row(store_url, per_execution) == (0.5, 2)


SHAPES: list[Any] = [
    [[1], [8], [3]],
    [2],
    [[]],
    [[], [1]],
    [[1], [], [[]], [[], [1]]],
    [[[2, 1]], [[[3]], 1]],
    ([1], (1, [1]), ()),
]


def _of_shape(shape: Any, counter: list[int]) -> Any:
    """Make the nested list: a number stands for that many samples beside each other."""
    tree: list[Any] = []
    for item in shape:
        if isinstance(item, int):
            for _ in range(item):
                counter[0] += 1
                tree.append(make_sample(counter[0], n_tokens=4))
        else:
            tree.append(_of_shape(item, counter))
    return tuple(tree) if isinstance(shape, tuple) else tree


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_c3_any_nesting_comes_back_in_train_and_eval(store_url: str, shape: Any) -> None:
    tree = _of_shape(shape, [0])
    with run_of(store_url) as run:
        run.record_train(0, tree)
        run.record_eval(0, {"d": {"samples": tree}})
    assert_same(loaded_train(store_url, 0).samples, tree)
    assert_same(loaded_eval(store_url, 0).data, {"d": {"samples": tree}})


class Group(list):  # type: ignore[type-arg]
    """A list with a class of its own."""


def test_c3_a_list_of_another_class_is_refused_not_changed(store_url: str) -> None:
    with run_of(store_url) as run:
        for samples in (Group([Sample()]), [Group([Sample()])], [np.array([Sample()], object)], {"a": [Sample()]}):
            with pytest.raises(UnsupportedValueError, match="samples"):
                run.record_train(0, samples)
        assert run.rollouts() == []


# -- C4: empty things ------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [[], [[]], [[], [Sample()]], [[[]]], ()], ids=repr)
def test_c4_empty_rollouts_come_back_with_their_metrics(store_url: str, samples: Any) -> None:
    output = RolloutFnTrainOutput(samples, {"kl": 0.5})
    with run_of(store_url) as run:
        run.record_train(0, output)
        assert_same(run.rollouts()[0].metrics, {"kl": 0.5})
    assert_same(loaded_train(store_url, 0), output)
    assert value(store_url, "SELECT avg(reward) FROM samples") is None


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"d": {}},
        {"d": {"samples": []}},
        {"d": {"samples": [], "rewards": [], "truncated": []}, "e": {"samples": [Sample()]}},
        {"d": {"rewards": [1.0]}},
        {"d": {"rewards": [1.0, 0.0], "samples": [Sample()]}},
        {"d": {"samples": None}},
        {"d": None, 3: {"samples": [Sample()]}, "": {}},
        {"b": {"x": 1, "samples": [Sample()], "a": 2}, "a": {"samples": [[Sample()], []]}},
    ],
    ids=repr,
)
def test_c4_empty_and_incomplete_evals_come_back(store_url: str, data: Any) -> None:
    output = RolloutFnEvalOutput(data, {"n": 0})
    with run_of(store_url) as run:
        run.record_eval(0, output)
    assert_same(loaded_eval(store_url, 0), output)


@pytest.mark.parametrize(
    "data",
    [
        OrderedDict(b={"samples": [Sample(index=1)]}, a={}),
        defaultdict(dict, {"d": {"samples": [Sample(index=1)]}}),
        {"d": OrderedDict(rewards=[1.0], samples=[Sample(index=1)])},
        {"d": defaultdict(list, {"samples": [Sample(index=1)], "rewards": [1.0]})},
    ],
    ids=lambda data: f"{type(data).__name__} of {type(next(iter(data.values()))).__name__}",
)
def test_c4_an_eval_in_other_kinds_of_dict_comes_back_as_that_kind(store_url: str, data: Any) -> None:
    with run_of(store_url) as run:
        run.record_eval(0, data)
    assert_same(loaded_eval(store_url, 0).data, data)
    assert found(store_url) == [1]


# -- C7: snapshots -----------------------------------------------------------------------------------------


@pytest.fixture
def slow_writer(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A writer that begins its work only when the event is set."""
    go = threading.Event()
    keep = PayloadWriter.keep

    def wait_and_keep(self: PayloadWriter, *args: Any) -> Any:
        assert go.wait(60)
        return keep(self, *args)

    monkeypatch.setattr(PayloadWriter, "keep", wait_and_keep)
    return go


def _changing_samples() -> list[Sample]:
    """Samples with everything that a caller may change in place."""
    samples = [
        make_sample(i, metadata={"messages": [{"role": "user"}], "a": np.arange(900)}, loss_mask=None) for i in range(3)
    ]
    samples[0].rollout_routed_experts = np.arange(600, dtype=np.int32).reshape(50, 6, 2)
    samples[0].multimodal_train_inputs = {"pixel_values": torch.ones(40, 50), "small": torch.ones(2)}
    samples[1].rollout_routed_experts = torch.arange(600, dtype=torch.int32).reshape(50, 6, 2)
    samples[1].teacher_log_probs = torch.zeros(64)  # type: ignore[assignment]
    samples[2].rollout_routed_experts = [[1, 2], [3, 4]]
    samples[2].reward = {"score": 1.0, "detail": [1]}
    return samples


def test_c7_what_is_stored_is_what_was_there_at_the_call(store_url: str, slow_writer: threading.Event) -> None:
    samples, metrics, state = _changing_samples(), {"kl": [0.5]}, {"cursor": [1], "buffer": [Sample(index=7)]}
    expected = copy.deepcopy((samples, metrics))
    with run_of(store_url) as run:
        future = run.record_train(0, RolloutFnTrainOutput([samples], metrics), state=state, background=True)
        evaluation = run.record_eval(0, {"d": {"samples": samples, "rewards": [1.0, 2.0, 3.0]}}, background=True)
        assert isinstance(future, Future)
        for sample in samples:
            sample.loss_mask = [0] * sample.response_length
            sample.metadata.pop("messages")
            sample.metadata["a"][:] = 0
            sample.tokens.append(1)
            sample.prompt[0]["content"] = "changed"  # type: ignore[index]
            sample.weight_versions.clear()
            assert sample.rollout_log_probs is not None
            sample.rollout_log_probs[0] = 99.0
            sample.spec_info.spec_verify_ct += 1
            sample.reward = None
        samples[0].rollout_routed_experts[:] = 0  # type: ignore[index]
        samples[0].multimodal_train_inputs["pixel_values"].zero_()  # type: ignore[index]
        samples[0].multimodal_train_inputs["small"].zero_()  # type: ignore[index]
        samples[1].rollout_routed_experts.zero_()  # type: ignore[union-attr]
        samples[1].teacher_log_probs.fill_(9)  # type: ignore[union-attr]
        samples[2].rollout_routed_experts[0][0] = 9  # type: ignore[index]
        metrics["kl"].append(1)
        samples.clear()
        assert not future.done()
        assert not evaluation.done()
        slow_writer.set()
        assert future.result(60).n_samples == 3
    assert_same(loaded_train(store_url, 0), RolloutFnTrainOutput([expected[0]], expected[1]))
    data = loaded_eval(store_url, 0).data["d"]
    assert_same((data["samples"], data["rewards"]), (expected[0], [1.0, 2.0, 3.0]))


def test_c7_background_records_land_in_the_order_of_the_calls(store_url: str, slow_writer: threading.Event) -> None:
    with run_of(store_url) as run:
        futures = [run.record_train(0, make_train_output(1, 1, seed=seed), background=True) for seed in range(4)]
        slow_writer.set()
        assert [future.result(60).attempt for future in futures] == [1, 2, 3, 4]
    assert_same(loaded_train(store_url, 0), make_train_output(1, 1, seed=3))


def test_c7_recording_in_the_foreground_is_done_when_it_returns(store_url: str) -> None:
    samples = _changing_samples()
    expected = copy.deepcopy(samples)
    with run_of(store_url) as run:
        run.record_train(0, [samples])
        samples[0].metadata["a"][:] = 0
        samples[0].rollout_routed_experts[:] = 0  # type: ignore[index]
        assert_same(loaded_train(store_url, 0).samples, [expected])


# -- C8: group level facts -----------------------------------------------------------------------------------


def test_c8_no_sample_is_filtered_out_and_a_status_is_its_plain_word(store_url: str) -> None:
    group = [Sample(index=i, status=status, reward=1.0) for i, status in enumerate(Sample.Status)]
    group += [Sample(index=5, remove_sample=True, reward=math.nan), Sample(index=6, reward=None)]
    with run_of(store_url) as run:
        run.record_train(0, [group])
    assert_same(loaded_train(store_url, 0).samples, [group])
    assert value(store_url, "SELECT count(*) FROM samples WHERE status = 'aborted'") == 1
    assert value(store_url, "SELECT count(*) FROM samples WHERE remove_sample") == 1
    words = rows(store_url, "SELECT status FROM samples ORDER BY position")
    expected = ["pending", "completed", "truncated", "aborted", "failed", "pending", "pending"]
    assert [word for (word,) in words] == expected
    with opened(store_url, read_only=True) as store:
        assert store.stats().n_samples == 7
