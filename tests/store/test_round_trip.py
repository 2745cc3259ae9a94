"""Whatever a rollout function may return comes back: generated rollouts, through the public door, on both databases."""

from __future__ import annotations

import copy
import pickle
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from slime_store import Sample, SampleStore
from slime_store.errors import BatchError
from slime_store.interchange import export_samples
from slime_store.testing import assert_same, strategies
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, iter_leaf_samples

# every example takes a run of its own in the one store of the test
_PROPERTY = settings(
    max_examples=max(20, settings().max_examples // 2),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


@_PROPERTY
@given(output=strategies.train_outputs())
def test_any_train_rollout_comes_back(store_url: str, output: RolloutFnTrainOutput) -> None:
    name, expected = uuid.uuid4().hex, copy.deepcopy(output)
    with run_of(store_url, name) as run:
        info = run.record_train(0, output)
    assert_same(output, expected)  # recording changes nothing
    assert_same(loaded_train(store_url, 0, name, sample_type=Sample), expected)
    leaves = list(iter_leaf_samples(expected.samples))
    with opened(store_url, read_only=True) as store:
        run = store.run(name, create=False)
        assert_same(run.rollouts(), [info])
        assert_same(list(run.iter_samples(batch_size=2, sample_type=Sample)), leaves)
    assert info.n_samples == len(leaves)


@_PROPERTY
@given(output=strategies.eval_outputs())
def test_any_eval_rollout_comes_back(store_url: str, output: RolloutFnEvalOutput) -> None:
    name, expected = uuid.uuid4().hex, copy.deepcopy(output)
    with run_of(store_url, name) as run:
        run.record_eval(0, output, weight_version="7")
    assert_same(output, expected)
    assert_same(loaded_eval(store_url, 0, name, sample_type=Sample), expected)


@_PROPERTY
@given(sample=strategies.samples(), state=strategies.documents())
def test_any_sample_comes_back_in_the_background_and_without_strictness(
    store_url: str, sample: Sample, state: object
) -> None:
    name, expected = uuid.uuid4().hex, copy.deepcopy(sample)
    with opened(store_url) as store:
        run = store.run(name)
        future = run.record_train(0, [[sample]], state=state, strict=False, background=True)
        assert future.result().placeholders == ()
        pickled: SampleStore = pickle.loads(pickle.dumps(store))
        with pickled:
            loaded = pickled.run(name, create=False).load_train(0, sample_type=Sample)
    assert_same(loaded.samples, [[expected]])


@settings(_PROPERTY, max_examples=_PROPERTY.max_examples // 4)  # each asks some thirty times
@given(sample=strategies.samples())
def test_any_one_field_of_any_sample_can_be_read_alone(store_url: str, sample: Sample) -> None:
    name, expected = uuid.uuid4().hex, copy.deepcopy(sample)
    with run_of(store_url, name) as run:
        run.record_train(0, [[sample]])
        for field in vars(expected):
            (loaded,) = run.iter_samples(fields=[field], sample_type=Sample)
            only = Sample()
            setattr(only, field, getattr(expected, field))
            assert_same(loaded, only, path=field)


class _Odd(int):
    def __int__(self) -> int:
        raise ValueError("no")


@pytest.mark.parametrize("value", [np.timedelta64(5, "ms"), np.timedelta64("NaT"), np.uint64(2**64 - 1)])
def test_an_integer_that_is_no_number_comes_back_from_every_whole_column(
    store_url: str, value: Any, tmp_path: Path
) -> None:
    names = ("index", "group_index", "rollout_id", "response_length")
    sample = Sample(spec_info=Sample.SpecInfo(), **dict.fromkeys(names, value), reward=value, metadata={"k": value})
    vars(sample.spec_info)["spec_accept_token_num"] = value
    with run_of(store_url) as run:
        run.record_train(0, [[sample]])
        assert_same(run.load_train(0, sample_type=Sample).samples, [[sample]])
        export_samples(run, tmp_path / "out.csv", format="csv")
        export_samples(run, tmp_path / "out.jsonl", format="jsonl")
        with pytest.raises(BatchError):
            run.load_batch(0)


def test_an_integer_whose_own_code_fails_does_not_fail_the_record(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(index=_Odd(1))]], strict=False)
        assert len(run.load_train(0, sample_type=Sample).samples[0]) == 1
