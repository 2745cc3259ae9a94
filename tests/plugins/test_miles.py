"""The miles plug-in, called as miles calls it; small stand-ins take the place of miles's modules."""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from slime_store import Run
from slime_store.plugins.miles import StoreDataSource, StoreRolloutFn, generate_rollout
from slime_store.plugins.session import forget_sessions
from slime_store.testing import assert_same
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from tests.plugins import given
from tests.plugins.fake_framework.plugin import HERE
from tests.plugins.given import dataset, group

Args = Callable[..., Namespace]


@dataclass(frozen=True)
class Made:
    args: Any
    data_source: Any


@dataclass(frozen=True)
class Asked:
    rollout_id: int
    evaluation: bool = False
    weight_version: Any = None


class CoroutineRollout:
    """A rollout class whose calls are coroutines; it counts its instances."""

    n_made = 0

    def __init__(self, made: Made) -> None:
        type(self).n_made += 1
        self.data_source = made.data_source

    async def __call__(self, asked: Asked) -> Any:
        if asked.evaluation:
            return RolloutFnEvalOutput({"math": dataset()}, {"pass": 1.0})
        [groups] = [self.data_source.get_samples(1)]
        for sample in groups[0]:
            sample.status, sample.reward, sample.tokens = Sample.Status.COMPLETED, 1.0, [1, 2, 3]
        return RolloutFnTrainOutput(groups, {"loss": 0.5})


class EvalOnly:
    def __init__(self, made: Made) -> None:
        pass

    def __call__(self, asked: Asked) -> Any:
        assert asked.evaluation
        return RolloutFnEvalOutput({"other": dataset()}, None)


class NothingToSample:
    """A source of many adapters, none of which has a prompt now."""

    closed = 0

    def __init__(self, args: Namespace) -> None:
        pass

    def get_samples(self, num_samples: int = 1) -> list[Any]:
        assert num_samples == 1
        return []

    def close(self) -> None:
        type(self).closed += 1


def _adapted(made: Made, path: str) -> Any:
    """A class is made; a function gets an adapter."""
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules[module], name)
    if inspect.isclass(found):
        return found(made)

    class Adapter:
        fn = staticmethod(found)

        def __call__(self, asked: Asked) -> Any:
            return found(made.args, asked.rollout_id, made.data_source, evaluation=asked.evaluation)

    return Adapter()


def _called(function: Any, asked: Asked) -> Any:
    output = function(asked)
    return asyncio.run(output) if inspect.iscoroutine(output) else output


@pytest.fixture(autouse=True)
def _miles(monkeypatch: pytest.MonkeyPatch) -> None:
    CoroutineRollout.n_made = NothingToSample.closed = 0
    rules = {"load_rollout_function": _adapted, "call_rollout_function": _called}
    outputs = {"RolloutFnTrainOutput": RolloutFnTrainOutput, "RolloutFnEvalOutput": RolloutFnEvalOutput}
    for name, content in {
        "miles": {},
        "miles.utils": {},
        "miles.utils.types": {"Sample": Sample},
        "miles.rollout": {},
        "miles.rollout.base_types": outputs,
        "miles.rollout.inference_rollout": {},
        "miles.rollout.inference_rollout.compatibility": rules,
    }.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def miles_args(args: Args) -> Args:
    def make(**options: Any) -> Namespace:
        return args(
            **{
                "slime_store_data_source_path": f"{HERE}.data_source.BufferedSource",
                "slime_store_rollout_function_path": f"{__name__}.CoroutineRollout",
                **options,
            }
        )

    return make


def test_a_class_with_coroutine_calls_is_wrapped_and_made_once(miles_args: Args, stored: Callable[..., Run]) -> None:
    args = miles_args()
    source = StoreDataSource(args)
    function = StoreRolloutFn(Made(args, source))
    source.load(-1)
    first = function(Asked(0, weight_version=4))
    function(Asked(1, weight_version=4))
    function(Asked(2, weight_version=5))
    evaluated = function(Asked(2, evaluation=True, weight_version="snapshot"))
    assert CoroutineRollout.n_made == 1
    assert type(first) is RolloutFnTrainOutput
    assert first.metrics.keys() > {"loss", "store/record_seconds", "store/errors"}
    assert evaluated.metrics["store/errors"] == 0
    run = stored()
    assert {version.label: version.metadata for version in run.weight_versions()} == {
        "4": {"rollout_id": 0},
        "5": {"rollout_id": 2},
        "1": None,  # of the eval's samples
        "snapshot": None,
    }
    assert_same(run.load_train(0), RolloutFnTrainOutput(first.samples, {"loss": 0.5}))
    assert_same(run.load_eval(2), RolloutFnEvalOutput({"math": dataset()}, {"pass": 1.0}))


def test_a_plain_function_is_wrapped_too(miles_args: Args, stored: Callable[..., Run]) -> None:
    args = miles_args(slime_store_rollout_function_path=given.PATH)
    given.will_return(0, [group(0)])
    given.will_return(0, {"math": dataset()}, evaluation=True)
    function = StoreRolloutFn(Made(args, StoreDataSource(args)))
    assert_same(function(Asked(0)).samples, [group(0)])
    assert set(function(Asked(0, evaluation=True)).data) == {"math"}
    assert [info.kind for info in stored().rollouts()] == ["train", "eval"]


def test_evals_may_have_a_class_of_their_own(miles_args: Args) -> None:
    args = miles_args(slime_store_eval_function_path=f"{__name__}.EvalOnly")
    function = StoreRolloutFn(Made(args, StoreDataSource(args)))
    assert set(function(Asked(0, evaluation=True)).data) == {"other"}


def test_the_older_calling_form_is_served_by_a_function(miles_args: Args, stored: Callable[..., Run]) -> None:
    args = miles_args(slime_store_rollout_function_path=given.PATH)
    given.will_return(3, RolloutFnTrainOutput([group(0)], None))
    assert_same(generate_rollout(args, 3, StoreDataSource(args), evaluation=False).samples, [group(0)])
    assert [info.rollout_id for info in stored().rollouts("train")] == [3]


def test_a_resumed_session_adopts_and_asks_no_class(miles_args: Args) -> None:
    args = miles_args()
    source = StoreDataSource(args)
    source.load(-1)
    first = StoreRolloutFn(Made(args, source))(Asked(0))
    forget_sessions()
    again = StoreDataSource(args)
    again.load(-1)
    adopted = StoreRolloutFn(Made(args, again))(Asked(0))
    assert adopted.metrics["store/adopted"] == 1
    assert_same(adopted.samples, first.samples)
    assert again.get_samples(1)[0][0].group_index == 1


def test_the_data_source_is_asked_as_miles_asks(miles_args: Args) -> None:
    source = StoreDataSource(miles_args())
    assert len(source.dataset) == 11
    assert source.get_buffer_length() == 0
    source.add_samples(source.get_samples(1))
    assert source.get_buffer_length() == 1
    assert source
    source.close()


def test_a_source_that_has_nothing_to_sample_hands_out_nothing_and_is_closed(miles_args: Args) -> None:
    source = StoreDataSource(miles_args(slime_store_data_source_path=f"{__name__}.NothingToSample"))
    assert source.get_samples(1) == []
    assert source.get_buffer_length() is None
    source.close()
    assert NothingToSample.closed == 1


def test_close_waits_until_everything_is_stored(miles_args: Args, tmp_path: Any) -> None:
    from slime_store import SampleStore

    args = miles_args()
    source = StoreDataSource(args)
    StoreRolloutFn(Made(args, source))(Asked(0))
    source.close()
    with SampleStore.open(tmp_path / "store.db", read_only=True) as store:
        assert len(store.run("run", create=False).rollouts("train")) == 1


def test_replay_makes_no_class_and_no_source(miles_args: Args) -> None:
    args = miles_args()
    source = StoreDataSource(args)
    recorded = StoreRolloutFn(Made(args, source))(Asked(0))
    forget_sessions()
    CoroutineRollout.n_made = 0
    replay = miles_args(slime_store_mode="replay")
    source = StoreDataSource(replay)
    output = StoreRolloutFn(Made(replay, source))(Asked(0))
    assert_same(output.samples, recorded.samples)
    assert CoroutineRollout.n_made == 0
    assert len(source.dataset) == 1
    assert source.get_buffer_length() is None


def test_a_loop_that_counts_samples_in_flight_hears_of_served_ones() -> None:
    from slime_store.plugins.guard import Guard
    from slime_store.plugins.intercept import activate, intercept
    from slime_store.plugins.tracker import GroupTracker

    module = types.ModuleType("a_rollout_module")

    async def generate_and_rm_group(
        state: Any, group: Any, sampling_params: Any, evaluation: bool = False, sample_done_callback: Any = None
    ) -> Any:
        raise AssertionError("the group is finished")

    module.generate_and_rm_group = generate_and_rm_group  # type: ignore[attr-defined]
    sys.modules["a_rollout_module"] = module
    try:
        assert intercept("generate_and_rm_group")
        tracker = GroupTracker(Guard("raise"), carry_over=True)
        tracker.take_over([group(7)])
        activate(tracker)
        done: list[int] = []
        prompt = [Sample(group_index=7, index=14), Sample(group_index=7, index=15)]
        call = module.generate_and_rm_group(None, prompt, {}, sample_done_callback=lambda: done.append(1))
        assert_same(asyncio.run(call), group(7))
        assert len(done) == 2
    finally:
        del sys.modules["a_rollout_module"]
