"""What a rollout function returns is recorded as it was then, and handed on in the framework's class."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from slime_store import Run
from slime_store.plugins.session import session_of
from slime_store.testing import assert_same
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from tests.plugins import given
from tests.plugins.fake_framework.plugin import FAKE, HERE, StoreSource, generate_rollout
from tests.plugins.given import dataset, finished, group

Args = Callable[..., Namespace]
Stored = Callable[..., Run]

TRAIN_SHAPES: dict[str, Any] = {
    "groups": [group(0), group(1)],
    "flat": [*group(0), *group(1)],
    "fan-out": [[[finished(0, 0), finished(0, 0)], [finished(0, 1)]], [[finished(1, 2)]]],
    "ragged": [group(0), [group(1), [finished(1, 9)]], []],
    "empty": [],
}


@pytest.mark.parametrize("bare", [False, True], ids=["dataclass", "bare list"])
@pytest.mark.parametrize("shape", TRAIN_SHAPES)
def test_a_train_rollout_of_any_shape_is_recorded_and_handed_on(
    shape: str, bare: bool, args: Args, stored: Stored
) -> None:
    samples = TRAIN_SHAPES[shape]
    given.will_return(3, samples if bare else RolloutFnTrainOutput(samples, {"loss": 0.5}))
    options = args(slime_store_rollout_function_path=given.PATH)
    output = generate_rollout(options, 3, StoreSource(options))
    assert type(output) is RolloutFnTrainOutput
    assert output.samples is samples
    assert output.metrics is not None
    assert output.metrics["store/errors"] == output.metrics["store/spooled"] == 0
    assert {"store/record_seconds", "store/bytes", "store/served_groups"} <= output.metrics.keys()
    loaded = stored().load_train(3)
    assert_same(loaded, RolloutFnTrainOutput(samples, None if bare else {"loss": 0.5}))


@pytest.mark.parametrize("bare", [False, True], ids=["dataclass", "bare dict"])
def test_an_eval_is_recorded_and_handed_on(bare: bool, args: Args, stored: Stored) -> None:
    data = {"math": dataset(), "code": {"rewards": [], "samples": []}}
    given.will_return(3, data if bare else RolloutFnEvalOutput(data, {"pass": 1.0}), evaluation=True)
    options = args(slime_store_rollout_function_path=given.PATH)
    output = generate_rollout(options, 3, StoreSource(options), evaluation=True)
    assert type(output) is RolloutFnEvalOutput
    assert output.data is data
    loaded = stored().load_eval(3)
    assert_same(loaded, RolloutFnEvalOutput(data, None if bare else {"pass": 1.0}))


def test_evals_of_a_function_that_cannot_evaluate_go_to_the_default_one(args: Args, stored: Stored) -> None:
    options = args(slime_store_rollout_function_path=f"{HERE}.fully_async.generate_rollout")
    output = generate_rollout(options, 0, StoreSource(options), evaluation=True)
    assert len(output.data["small"]["samples"]) == 3
    assert_same(stored().load_eval(0).data, output.data)


def test_evals_go_to_a_function_of_their_own_where_one_is_given(args: Args) -> None:
    given.will_return(0, {"own": dataset()}, evaluation=True)
    output = generate_rollout(args(slime_store_eval_function_path=given.PATH), 0, None, evaluation=True)
    assert set(output.data) == {"own"}


def test_c7_what_changes_right_after_the_call_is_not_recorded(args: Args, stored: Stored) -> None:
    sample = finished(0, 0, loss_mask=None, metadata={"messages": ["hi"], "deep": {"list": [1]}})
    given.will_return(0, [[sample]])
    options = args(slime_store_rollout_function_path=given.PATH)
    generate_rollout(options, 0, StoreSource(options))
    sample.loss_mask = [0, 0]
    sample.metadata.pop("messages")
    sample.metadata["deep"]["list"].append(2)
    sample.tokens.append(9)
    [[loaded]] = stored().load_train(0).samples
    assert loaded.loss_mask is None
    assert loaded.metadata == {"messages": ["hi"], "deep": {"list": [1]}}
    assert loaded.tokens == [1, 2, 0]


def test_the_session_row_says_where_it_began_and_what_it_was_given(args: Args, stored: Stored) -> None:
    given.will_return(3, [group(0)])
    given.will_return(4, [group(1)])
    options = args(slime_store_rollout_function_path=given.PATH, api_key="hidden", lr=0.25)
    source = StoreSource(options)
    source.load(2)
    generate_rollout(options, 3, source)
    source.save(3)
    session_of(options, FAKE).flush()
    again = args(slime_store_rollout_function_path=given.PATH, lr=0.25)
    run = stored()
    resumed = StoreSource(again)
    resumed.load(2)
    assert generate_rollout(again, 3, resumed).metrics["store/adopted"] == 1
    generate_rollout(again, 4, resumed)
    run = stored()
    with run._handle.reading() as connection:
        sessions = connection.execute(sa.text("select ordinal, checkpoint_rollout_id, lineage, client from sessions"))
        rows = sessions.all()
        adoptions = connection.execute(sa.text("select count(*) from adoptions")).scalar()
        checkpoints = connection.execute(sa.text("select rollout_id from checkpoints")).scalars().all()
    assert [(row.ordinal, row.checkpoint_rollout_id) for row in rows] == [(1, 2), (2, 2)]
    assert all('"lr":0.25' in row.lineage and '"dataset"' in row.lineage for row in rows)
    assert all("slime_store" in row.client for row in rows)
    assert (adoptions, checkpoints) == (1, [3])
    assert [(i.rollout_id, i.attempt) for i in run.rollouts("train", attempts=True)] == [(3, 1), (4, 1)]


def test_secrets_and_the_address_stay_out_of_the_runs_config(args: Args, tmp_path: Any) -> None:
    from slime_store import SampleStore
    from slime_store.plugins.session import forget_sessions

    StoreSource(args(wandb_key="w", my_api_key="k", rm_auth_token="t", lr=1.0)).load(-1)
    forget_sessions()
    with SampleStore.open(tmp_path / "store.db") as store:
        [info] = store.runs()
    assert info.config["lr"] == 1.0
    assert not info.config.keys() & {"wandb_key", "my_api_key", "rm_auth_token", "slime_store_url"}


def test_the_journal_holds_groups_at_once_and_is_empty_when_their_rollout_is_recorded(args: Args) -> None:
    from slime_store.plugins.intercept import activate

    options = args()
    session = session_of(options, FAKE)
    source = StoreSource(options)
    source.load(-1)
    activate(session.tracker)
    session.tracker.begin(0, session.journal())
    session.tracker.finished(group(0), group(0))
    session.tracker.finished(group(1), [finished(1, 2, reward=None), finished(1, 3)])  # not rewarded: no journal
    session.flush_journal()
    [journalled] = session.run.resume(sample_type=Sample).journalled_groups
    assert_same(journalled, group(0))
    generate_rollout(options, 0, source)
    session.flush()
    assert session.run.resume(sample_type=Sample).journalled_groups == []


def test_a_source_is_used_as_the_wrapped_one_is(args: Args) -> None:
    source = StoreSource(args())
    source.add_samples(source.get_samples(2)[:1])
    assert source.get_buffer_length() == 1
    assert len(source) == 11
    assert [g[0].group_index for g in source.get_samples(2)] == [0, 2]
    assert source
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = source.no_such_thing


def test_prompts_are_handed_out_once_each_to_many_threads(args: Args) -> None:
    from concurrent.futures import ThreadPoolExecutor

    source = StoreSource(args(slime_store_carry_over=True, n_prompts=1000))
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda n: source.get_samples(1 + n % 3), range(120)))
    indexes = sorted(g[0].group_index for groups in taken for g in groups)
    assert indexes == list(range(len(indexes)))


def test_a_group_index_that_is_no_number_is_no_obstacle(args: Args, stored: Stored) -> None:
    samples = [[finished("task-7", 0)], [finished(None, 1)]]
    given.will_return(0, samples)
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_carry_over=True)
    source = StoreSource(options)
    session = session_of(options, FAKE)
    session.tracker.handed_out(samples)
    assert generate_rollout(options, 0, source).metrics["store/errors"] == 0
    assert_same(stored().load_train(0).samples, samples)


def test_a_source_whose_rollouts_do_not_come_through_the_plug_in_says_so(
    args: Args, caplog: pytest.LogCaptureFixture
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    source = StoreSource(options)
    source.load(-1)
    source.save(0)
    source.save(1)
    assert caplog.text.count("set --rollout-function-path to slime_store's") == 1
    caplog.clear()
    given.will_return(2, [group(2)])
    generate_rollout(options, 2, source)
    source.save(2)
    assert "rollout-function-path" not in caplog.text
