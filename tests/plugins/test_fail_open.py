"""A store in trouble does not stop training, unless it was asked to; what it cannot take waits in the spool."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.dataframes import weight_versions_df
from slime_store.errors import StoreError, StoreFullError
from slime_store.interchange import import_path
from slime_store.plugins import session as sessions
from slime_store.plugins.session import PluginSession, session_of
from slime_store.repositories.resume import ResumeRepository
from slime_store.store import journal, prepared
from slime_store.testing import assert_same
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from tests.plugins import given
from tests.plugins.fake_framework.plugin import FAKE, StoreSource, generate_rollout
from tests.plugins.given import dataset, group

Args = Callable[..., Namespace]


def _spooled(tmp_path: Path) -> Any:
    [file] = (tmp_path / "spool").glob("run.*.db")
    sessions.forget_sessions()
    return SampleStore.open(file, read_only=True)


def _train(options: Namespace, n: int = 2) -> list[dict[str, Any]]:
    """Return the metrics of so many rollouts with an eval after them."""
    source = StoreSource(options)
    source.load(-1)
    metrics = []
    for number in range(n):
        given.will_return(number, [group(number)])
        output = generate_rollout(options, number, source)
        assert_same(output.samples, [group(number)])
        metrics.append(output.metrics)
        source.save(number)
    given.will_return(n, {"math": dataset()}, evaluation=True)
    metrics.append(generate_rollout(options, n, source, evaluation=True).metrics)
    return metrics


def _full(*_: Any) -> Any:
    raise StoreFullError("record a rollout", "no space left")


def test_a_store_that_cannot_be_opened_leads_to_the_spool(
    args: Args, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.db").write_text("not a database at all, and long enough to be sure of it" * 30)
    options = args(slime_store_rollout_function_path=given.PATH, num_rollout=3)
    caplog.set_level(logging.INFO)
    metrics = _train(options)
    assert metrics[-1]["store/errors"] > 0
    with _spooled(tmp_path) as store:
        run = store.run("run", create=False)
        assert_same(run.load_train(0).samples, [group(0)])
        assert_same(run.load_train(1).samples, [group(1)])
        assert_same(run.load_eval(2).data, {"math": dataset()})
    assert "could not" in caplog.text
    assert "training goes on" in caplog.text
    assert "slime-store --store URL import" in caplog.text
    assert (tmp_path / "store.db").read_text().startswith("not a database")


def test_what_was_served_and_is_spooled_keeps_the_weight_versions_of_its_session(
    args: Args, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_mode="resume")
    StoreSource(options).load(-1)
    session_of(options, FAKE).journal().put(0, group(0))  # type: ignore[union-attr]
    sessions.forget_sessions()  # it dies
    source = StoreSource(options)
    source.load(-1)
    session = session_of(options, FAKE)
    served = session.tracker.finished_before([Sample(group_index=0, index=i) for i in range(2)])
    assert_same(served, group(0))
    given.will_return(0, [served, group(1)])
    real = prepared.write_rollout

    def full_for_the_store(handle: Any, *rest: Any) -> Any:
        return _full() if handle.config.path.name == "store.db" else real(handle, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(prepared, "write_rollout", full_for_the_store)
        generate_rollout(options, 0, source)
        session.flush()
    _spooled(tmp_path).close()
    [file] = (tmp_path / "spool").glob("run.*.db")
    with SampleStore.open(tmp_path / "store.db") as store:
        run = store.run("run", create=False)
        assert [each.action for each in import_path(run, file).files] == ["recorded"]
        found = weight_versions_df(run)[["session", "weight_version", "n_samples"]]
        assert found.values.tolist() == [[1, "1", 2], [2, "1", 2]]
        assert run.resume(checkpoint_rollout_id=-1).journalled_groups == []


def test_an_unreachable_server_is_not_asked_again_and_again(args: Args, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise StoreError("no route to host")

    monkeypatch.setattr(sessions.SampleStore, "open", unreachable)
    _train(args(slime_store_rollout_function_path=given.PATH, slime_store_spool_dir="/proc/nowhere"))
    assert len(asked) < 8  # the spool's own attempts; one for the store


def test_a_full_disk_leads_to_the_spool_and_the_store_is_used_again_when_there_is_room(
    args: Args, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    source = StoreSource(options)
    source.load(-1)
    real = prepared.write_rollout

    def full_for_the_store(handle: Any, *rest: Any) -> Any:
        return _full() if handle.config.path.name == "store.db" else real(handle, *rest)

    for number in range(3):
        with monkeypatch.context() as patch:
            if number == 1:
                patch.setattr(prepared, "write_rollout", full_for_the_store)
            given.will_return(number, [group(number)])
            generate_rollout(options, number, source)
            session_of(options, FAKE).flush()
    metrics = session_of(options, FAKE).metrics(0.0)
    assert (metrics["store/errors"], metrics["store/spooled"]) == (1, 1)
    with _spooled(tmp_path) as spool, SampleStore.open(tmp_path / "store.db") as store:
        assert [info.rollout_id for info in spool.run("run", create=False).rollouts()] == [1]
        assert [info.rollout_id for info in store.run("run", create=False).rollouts()] == [0, 2]


def test_a_checkpoint_whose_rollout_is_not_in_the_store_is_not_resumed_from(
    args: Args, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    real, asked = prepared.write_rollout, {1: "store.db", 3: ""}  # spooled; lost

    def write(handle: Any, request: Any, *rest: Any) -> Any:
        at = asked.get(request.rollout_id)
        return real(handle, request, *rest) if at is None or (at and handle.config.path.name != at) else _full()

    monkeypatch.setattr(prepared, "write_rollout", write)
    source = StoreSource(options)
    source.load(-1)
    noted = []
    for number in range(5):
        given.will_return(number, [group(number)])
        source.get_samples(1)
        generate_rollout(options, number, source)
        source.save(number)
        with SampleStore.open(tmp_path / "store.db", read_only=True) as store:
            point = store.run("run", create=False).resume()
            noted.append((point.checkpoint_rollout_id, point.next_rollout_id))
            assert point.state["sample_offset"] == point.checkpoint_rollout_id + 1
    assert noted == [(0, 1), (0, 1), (2, 3), (2, 3), (4, 5)]
    assert [number for number in range(5) if f"of the checkpoint after rollout {number}\n" in caplog.text] == [1, 3]


def test_a_checkpoint_after_an_adopted_rollout_is_noted(args: Args, tmp_path: Path) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    for _ in range(2):
        source = StoreSource(options)
        source.load(-1)
        given.will_return(0, [group(0)])
        generate_rollout(options, 0, source)
        session_of(options, FAKE).flush()
        sessions.forget_sessions()
    assert given.calls == [(False, 0)]
    source = StoreSource(options)
    source.load(-1)
    generate_rollout(options, 0, source)
    source.save(0)
    with SampleStore.open(tmp_path / "store.db", read_only=True) as store:
        assert store.run("run", create=False).resume().checkpoint_rollout_id == 0


@pytest.mark.parametrize(
    "error", [StoreFullError("record a rollout", "no space left"), OSError("gone"), RuntimeError("a fault of ours")]
)
def test_an_error_inside_the_journal_costs_the_journal_only(
    error: Exception, args: Args, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(journal, "write_rollouts", fail)
    options = args()
    source = StoreSource(options)
    source.load(-1)
    output = generate_rollout(options, 0, source)
    assert len(output.samples) == 4
    assert output.metrics["store/errors"] >= 1
    sessions.forget_sessions()
    with SampleStore.open(tmp_path / "store.db") as store:
        assert_same(store.run("run").load_train(0).samples, output.samples)


def test_an_error_while_a_group_is_looked_at_costs_the_journal_only(
    args: Args, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slime_store.plugins import tracker

    def fail(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(tracker, "group_index_of", fail)
    options = args()
    source = StoreSource(options)
    assert len(generate_rollout(options, 0, source).samples) == 4


def test_what_is_not_even_spooled_is_said_to_be_lost(
    args: Args, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prepared, "write_rollout", _full)
    options = args(slime_store_rollout_function_path=given.PATH)
    _train(options)
    session_of(options, FAKE).flush()
    assert "spool train rollout 0, which is lost" in caplog.text


def test_a_value_that_cannot_be_stored_becomes_a_placeholder_and_is_reported(args: Args, tmp_path: Path) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    given.will_return(0, [group(0, metadata={"file": open, "kept": 1})])
    assert generate_rollout(options, 0, StoreSource(options)).metrics["store/errors"] == 0
    sessions.forget_sessions()
    with SampleStore.open(tmp_path / "store.db") as store:
        [info] = store.run("run").rollouts()
        assert "group 0, sample 0, metadata['file']" in info.placeholders
        assert store.run("run").load_train(0).samples[0][0].metadata["kept"] == 1


@pytest.mark.parametrize("metrics", [[("kept", 1)], (), "none"])
def test_metrics_that_are_no_dict_are_handed_on_as_they_are(metrics: Any, args: Args) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    given.will_return(0, RolloutFnTrainOutput([group(0)], metrics))
    given.will_return(0, RolloutFnEvalOutput({"math": dataset()}, metrics), evaluation=True)
    source = StoreSource(options)
    assert generate_rollout(options, 0, source).metrics == metrics
    assert generate_rollout(options, 0, source, evaluation=True).metrics == metrics


class _NoState:
    """A data source that cannot say its state."""

    def __init__(self, args: Any) -> None:
        pass

    def state_dict(self) -> Any:
        raise RuntimeError("not now")

    def load_state_dict(self, state: Any) -> None:
        pass


def test_a_rollout_is_recorded_although_the_data_source_cannot_say_its_state(args: Args, stored: Any) -> None:
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_data_source_path=f"{__name__}._NoState")
    given.will_return(0, [group(0)])
    assert generate_rollout(options, 0, StoreSource(options)).metrics["store/errors"] == 1
    run = stored()
    assert_same(run.load_train(0).samples, [group(0)])
    assert run.resume().refused == "rollout 0 was recorded without the data source's state"


def test_a_session_that_cannot_be_noted_resumes_all_the_same(
    args: Args, monkeypatch: pytest.MonkeyPatch, stored: Any
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    given.will_return(0, [group(0)])
    given.will_return(1, [group(1)])
    generate_rollout(options, 0, StoreSource(options))
    sessions.forget_sessions()
    with monkeypatch.context() as patch:
        patch.setattr(ResumeRepository, "describe_session", _full)
        source = StoreSource(options)
        source.load(-1)
        assert generate_rollout(options, 0, source).metrics["store/adopted"] == 1
    generate_rollout(options, 1, source)
    run = stored()
    assert run.resume(lineage={"lr": 2.0}, checkpoint_rollout_id=0).refused == (
        "rollout 1 was generated with another lr"
    )


def test_no_group_is_journalled_of_a_session_whose_lineage_is_not_noted(
    args: Args, monkeypatch: pytest.MonkeyPatch, stored: Any
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    source = StoreSource(options)
    with monkeypatch.context() as patch:
        patch.setattr(ResumeRepository, "describe_session", _full)
        source.load(-1)
        assert session_of(options, FAKE).guard.run("open the journal", session_of(options, FAKE).journal) is None
    session_of(options, FAKE).journal().put(0, group(0))  # type: ignore[union-attr]
    run = stored()
    assert run.resume(lineage={"lr": 2.0}).journalled_groups == []
    assert len(run.resume(lineage={"lr": 1.0}).journalled_groups) == 1


def test_an_adoption_that_could_not_be_noted_is_noted_with_the_next_rollout(
    args: Args, monkeypatch: pytest.MonkeyPatch, stored: Any
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH)
    _train(options)
    sessions.forget_sessions()
    source = StoreSource(options)
    source.load(0)
    with monkeypatch.context() as patch:
        patch.setattr(ResumeRepository, "adopt", _full)
        assert generate_rollout(options, 1, source).metrics["store/adopted"] == 1
    given.will_return(2, [group(2)])
    generate_rollout(options, 2, source)
    run = stored()
    assert [info.session for info in run.resume(checkpoint_rollout_id=0).complete] == [1, 2]


def test_a_session_that_began_without_the_store_started_where_it_then_was(
    args: Args, monkeypatch: pytest.MonkeyPatch, stored: Any
) -> None:
    """Its first rollout is in the spool: what came next did not follow an earlier session's."""
    options = args(slime_store_rollout_function_path=given.PATH)
    _train(options)
    sessions.forget_sessions()
    source = StoreSource(options)
    for number in (1, 2):
        given.will_return(number, [group(10 + number)])
        with monkeypatch.context() as patch:
            if number == 1:
                patch.setattr(PluginSession, "run", property(_full))
                source.load(0)
            generate_rollout(options, number, source)
            session_of(options, FAKE).flush()
    point = stored().resume(checkpoint_rollout_id=0)
    assert [info.rollout_id for info in point.complete] == [1]
    assert point.refused == "rollout 2 is from session 2, which did not go on from attempt 1 of rollout 1"


def test_a_store_that_makes_everybody_wait_is_waited_for_once_by_the_journal(
    args: Args, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> Any:
        time.sleep(0.2)
        raise StoreError("database is locked")

    monkeypatch.setattr(journal, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(journal, "write_rollouts", busy)
    options = args(rollout_batch_size=96, over_sampling_batch_size=96, n_prompts=100)
    assert generate_rollout(options, 0, StoreSource(options)).metrics["store/errors"] <= 3  # of six batches


def test_a_long_name_of_a_run_makes_a_file_name_that_can_be(args: Args, monkeypatch: pytest.MonkeyPatch) -> None:
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_run="运行" * 200)
    given.will_return(0, [group(0)])
    monkeypatch.setattr(sessions.PluginSession, "run", property(_full))
    generate_rollout(options, 0, StoreSource(options))
    session_of(options, FAKE).flush()
    assert session_of(options, FAKE).spool.n_kept == 1


def test_with_on_error_raise_a_store_that_cannot_be_opened_stops_training(args: Args, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("not a database at all, and long enough to be sure of it" * 30)
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_on_error="raise")
    with pytest.raises(StoreError):
        StoreSource(options).load(-1)


def test_with_on_error_raise_a_failed_record_stops_training_at_the_next_call_and_is_spooled(
    args: Args, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_on_error="raise")
    source = StoreSource(options)
    source.load(-1)
    real = prepared.write_rollout
    monkeypatch.setattr(
        prepared,
        "write_rollout",
        lambda handle, *rest: _full() if handle.config.path.name == "store.db" else real(handle, *rest),
    )
    given.will_return(0, [group(0)])
    given.will_return(1, [group(1)])
    with pytest.raises(StoreFullError):
        generate_rollout(options, 0, source)
        session_of(options, FAKE).flush()
        generate_rollout(options, 1, source)
    monkeypatch.undo()
    with _spooled(tmp_path) as spool:
        assert_same(spool.run("run", create=False).load_train(0).samples, [group(0)])


def test_with_on_error_raise_and_strict_a_value_that_cannot_be_stored_stops_training(args: Args) -> None:
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_on_error="raise", slime_store_strict=True)
    given.will_return(0, [group(0, metadata={"file": open})])
    with pytest.raises(StoreError, match="group 0, sample 0, metadata"):
        generate_rollout(options, 0, StoreSource(options))


def test_an_error_of_the_rollout_function_is_the_users_own(args: Args) -> None:
    with pytest.raises(KeyError):
        options = args(slime_store_rollout_function_path=given.PATH)
        generate_rollout(options, 99, StoreSource(options))


def test_with_on_error_raise_a_checkpoint_of_a_rollout_that_is_not_stored_is_refused(
    args: Args, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = args(slime_store_rollout_function_path=given.PATH, slime_store_on_error="raise")
    source = StoreSource(options)
    source.load(-1)
    monkeypatch.setattr(prepared, "write_rollout", _full)
    given.will_return(0, [group(0)])
    generate_rollout(options, 0, source)
    with pytest.raises(StoreFullError):
        source.save(0)  # perhaps the last call of all


def test_a_recorded_rollout_that_cannot_be_read_is_generated_and_nothing_later_is_served(
    args: Args, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = args(over_sampling_batch_size=5)  # rollout 0 asks for group 4 too
    source = StoreSource(options)
    source.load(-1)
    for number in range(2):
        generate_rollout(options, number, source)
    session = session_of(options, FAKE)
    session.tracker.begin(2, session.journal())
    session.tracker.finished(group(4), group(4))  # of rollout 1's weights
    session.flush()
    sessions.forget_sessions()
    again = StoreSource(options)
    again.load(-1)
    session = session_of(options, FAKE)
    monkeypatch.setattr(type(session.run), "load_train", _full)
    for number in range(2):
        assert generate_rollout(options, number, again).metrics["store/served_groups"] == 0
    session.flush()
    assert session.run.resume(sample_type=given.Sample).journalled_groups == []
