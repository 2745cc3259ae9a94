"""Spool files, and other stores, come in whole and once."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store import ParamInfo, RolloutFnEvalOutput, RolloutFnTrainOutput, Run, Sample, SampleStore
from slime_store.dataframes import eval_summary_df
from slime_store.interchange import export_run, import_path, stores
from slime_store.store import sessions
from slime_store.store.imports import find_extras
from slime_store.store.prepared import prepare_eval, prepare_train
from slime_store.store.resume import load_state
from slime_store.testing import assert_same
from slime_store.testing.factories import make_eval_output, make_train_output
from tests.interchange.given import one_sample
from tests.services.commands import invoke


def test_a_spool_file_comes_in_once_with_states_and_attempts(store_url: str, tmp_path: Path) -> None:
    outputs = [make_train_output(2, 2, seed=1), make_train_output(2, 2, seed=2)]
    spool = tmp_path / "spool.db"
    with SampleStore.open(spool) as store:
        run = store.run("r")
        run.record_train(3, outputs[0], state={"sample_offset": 4})
        run.record_train(3, outputs[1], state={"sample_offset": 5})
        run.record_eval(3, make_eval_output(seed=3))
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.record_train(1, make_train_output(1, 1))
        first = import_path(run, spool)
        again = import_path(run, spool)
        assert [len(first.recorded), len(first.skipped)] == [3, 0]
        assert [len(again.recorded), len(again.skipped)] == [0, 3]
        for attempt, output in enumerate(outputs, 1):
            assert_same(run.load_train(3, attempt=attempt, sample_type=Sample), output)
        assert run.recovery.load_state(3) == {"sample_offset": 5}
        assert_same(run.load_eval(3, sample_type=Sample), make_eval_output(seed=3))


def test_the_command_takes_spool_files_and_goes_on_after_what_is_none(store_url: str, tmp_path: Path) -> None:
    spool, foreign, pipe = tmp_path / "spool.db", tmp_path / "foreign.db", tmp_path / "7.pt"
    with SampleStore.open(spool) as store:
        store.run("r").record_train(3, make_train_output(1, 2))
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")
    os.mkfifo(pipe)  # nobody writes to it: opening it would wait for ever
    files = [str(path) for path in (foreign, pipe, spool)]
    done = invoke("--store", store_url, "import", *files, "--run", "r", "--format", "csv")
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["action", "failed", "failed", "recorded"]
    assert done.exit_code == 1 and "is not a slime_store" in done.stderr and "not a regular file" in done.stderr
    with SampleStore.open(store_url, read_only=True) as store:
        assert [info.rollout_id for info in store.run("r", create=False).rollouts()] == [3]


def test_dumps_of_the_same_rollouts_do_not_stand_in_the_way_of_a_restart(store_url: str, tmp_path: Path) -> None:
    outputs = [make_train_output(1, 2, seed=number) for number in range(3)]
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        for number, output in enumerate(outputs):
            run.record_train(number, output, state={"sample_offset": number})
        before = run.resume(checkpoint_rollout_id=0)
        export_run(run, str(tmp_path / "dumps" / "{rollout_id}.pt"))
        assert len(import_path(run, tmp_path / "dumps").recorded) == 3
        after = run.resume(checkpoint_rollout_id=0)
        assert after == before
        assert [(info.rollout_id, info.attempt) for info in after.complete] == [(1, 1), (2, 1)]
        run.record_train(1, outputs[1])  # no dump: what followed the first attempt does not follow this one
        assert run.resume(checkpoint_rollout_id=0).refused == "rollout 1 was recorded without the data source's state"


def _spool(path: Path, rollout_ids: list[int], lineage: dict[str, Any], offset: int = 0) -> None:
    """A file as the plug-in's spool writes it."""
    with SampleStore.open(path) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=None, lineage=lineage)
        for number in rollout_ids:
            run.record_train(number, make_train_output(1, 2, seed=number), state={"sample_offset": number + offset})


def test_spooled_rollouts_are_adopted_where_their_neighbours_are(store_url: str, tmp_path: Path) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        run.record_train(0, make_train_output(1, 2), state={"sample_offset": 0})
        _spool(tmp_path / "spool.db", [1, 2], {"lr": 1})
        run.record_train(3, make_train_output(1, 2), state={"sample_offset": 3})
        assert run.resume(lineage={"lr": 1}).next_rollout_id == 1
        assert len(import_path(run, tmp_path / "spool.db").recorded) == 2
        point = run.resume(lineage={"lr": 1})
        assert ([info.rollout_id for info in point.complete], point.refused) == ([0, 1, 2, 3], None)
        assert {info.session for info in point.complete} == {1}


def test_spooled_rollouts_are_adopted_although_the_clock_was_set_back(store_url: str, tmp_path: Path) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        run.record_train(0, make_train_output(1, 2), state={"sample_offset": 0})
        _spool(tmp_path / "spool.db", [1], {"lr": 1})
        with closing(sqlite3.connect(tmp_path / "spool.db")) as connection, connection:
            for table, column in (("rollouts", "started_at"), ("weight_versions", "first_seen_at")):
                connection.execute(f"UPDATE {table} SET {column} = datetime({column}, '-1 hour') || '.000000'")
        run.record_train(2, make_train_output(1, 2), state={"sample_offset": 2})
        assert len(import_path(run, tmp_path / "spool.db").recorded) == 1
        assert [info.session for info in run.rollouts()] == [1, 1, 1]
        assert run.resume(lineage={"lr": 1}).next_rollout_id == 3


def test_spooled_rollouts_of_another_lineage_are_refused(store_url: str, tmp_path: Path) -> None:
    _spool(tmp_path / "spool.db", [0, 1], {"lr": 1})  # by a process that never reached the store
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        import_path(run, tmp_path / "spool.db")
        assert run.resume(lineage={"lr": 2}).refused == "rollout 0 was generated with another lr"
        assert run.resume(lineage={"lr": 1}).next_rollout_id == 2


def test_a_spooled_rollout_that_was_made_anew_since_does_not_move_the_data_source(
    store_url: str, tmp_path: Path
) -> None:
    _spool(tmp_path / "spool.db", [0], {"lr": 1}, offset=100)
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        run.record_train(0, make_train_output(1, 2, seed=9), state={"sample_offset": 1})
        run.recovery.record_checkpoint(0)
        for _ in range(2):
            import_path(run, tmp_path / "spool.db")
        assert [info.attempt for info in run.rollouts(attempts=True)] == [1, 2]
        assert run.resume().state == {"sample_offset": 1}


def _spooled_and_gone(store_url: str, spool: Path) -> None:
    """Record 0 in the store and 1 in the spool, as one process that has ended since."""
    with SampleStore.open(store_url) as store, SampleStore.open(spool) as spooled:
        for run, start, rollout_id in ((store.run("r"), -1, 0), (spooled.run("r"), None, 1)):
            run.recovery.begin_session(checkpoint_rollout_id=start, lineage={"lr": 1})
            run.record_train(rollout_id, make_train_output(1, 2), state={"sample_offset": 10 * rollout_id})


def _made_anew(store_url: str) -> None:
    """Record 1 as the next process, which started behind 0, with a checkpoint."""
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=0, lineage={"lr": 1})
        run.record_train(1, make_train_output(1, 2, seed=1), state={"sample_offset": 12, "noise": np.arange(3000)})
        run.recovery.record_checkpoint(1)


@pytest.mark.parametrize("when", ["before", "meanwhile", "after", "before, by a clock that is behind"])
def test_the_state_of_what_is_imported_is_never_taken_for_that_of_the_new_way(
    store_url: str, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spooled_and_gone(store_url, tmp_path / "spool.db")
    if when.startswith("before"):
        with monkeypatch.context() as patch:
            if "clock" in when:
                patch.setattr(sessions, "utc_now", lambda: datetime(2020, 1, 1, tzinfo=timezone.utc))
            _made_anew(store_url)
    original = stores.record_import

    def recorded(*arguments: Any, **options: Any) -> Any:
        if when == "meanwhile":
            _made_anew(store_url)
        return original(*arguments, **options)

    monkeypatch.setattr(stores, "record_import", recorded)
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        assert len(import_path(run, tmp_path / "spool.db").recorded) == 1
        if when == "after":
            _made_anew(store_url)
        assert [info.session for info in run.rollouts(attempts=True)] == [1, 1, 2] if when == "after" else [1, 2, 1]
        assert run.recovery.load_state(1)["sample_offset"] == run.resume().state["sample_offset"] == 12
        assert store.verify().problems == ()


def test_what_the_same_session_has_made_anew_since_does_not_bring_its_state(store_url: str, tmp_path: Path) -> None:
    with SampleStore.open(store_url) as store, SampleStore.open(tmp_path / "spool.db") as spool:
        for run in (spool.run("r"), store.run("r")):
            run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        output = make_train_output(1, 2)
        spool.run("r").record_train(0, output, state={"noise": np.arange(3000)})  # then it went back
        store.run("r").record_train(0, output, state="the way that it went on")
        spool.run("r").record_train(1, output, state="recorded once")
        import_path(store.run("r"), tmp_path / "spool.db")
        recovery = store.run("r").recovery
        assert [recovery.load_state(number) for number in (0, 1)] == ["the way that it went on", "recorded once"]
        assert store.verify().problems == ()


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen before", "seen in the transaction"])
def test_a_spooled_rollout_that_was_stored_all_the_same_is_there_once(
    store_url: str, tmp_path: Path, is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_seen:
        monkeypatch.setattr(stores, "find_recording", lambda *_: None)
    with SampleStore.open(store_url) as store, SampleStore.open(tmp_path / "spool.db") as spool:
        run, spooled = store.run("r"), spool.run("r")
        run.record_train(0, make_train_output(1, 2), state={"sample_offset": 0})
        prepared = prepare_train(1, make_train_output(1, 2, seed=1), state={"sample_offset": 1})
        measured = prepare_eval(1, make_eval_output(seed=1))
        for each in (run, spooled):  # the answer to the store's COMMIT was lost
            prepared.store(each)
            measured.store(each)
        spooled.record_train(1, make_train_output(1, 2, seed=2), state={"sample_offset": 1})
        report = import_path(run, tmp_path / "spool.db")
        assert [(each.action, each.kind, each.attempt) for each in report.files] == [
            ("skipped", "train", 1),
            ("recorded", "train", 2),  # another one of the same id
            ("skipped", "eval", 1),
        ]
        assert "there already, as attempt 1 of train rollout 1 of run 'r'" in report.files[0].reason
        run.delete_rollout(1)
        assert len(import_path(run, tmp_path / "spool.db").recorded) == 2
        assert store.verify().ok


def test_a_backup_that_is_imported_into_its_own_store_adds_nothing(store_url: str, tmp_path: Path) -> None:
    _spool(tmp_path / "spool.db", [2, 3], {"lr": 1})
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        for number in range(2):
            run.record_train(number, make_train_output(1, 2, seed=number), state={"sample_offset": number})
            run.record_eval(number, make_eval_output(seed=number), weight_version="7")
        import_path(run, tmp_path / "spool.db")
        store.backup(tmp_path / "backup.db")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 2})
        run.recovery.record_checkpoint(3)
        run.prune(keep_arrays_last=1)  # the rollout is there, if not all of it
        before, sessions, versions = _facts(run), run.sessions(), run.weight_versions()
        for _ in range(2):
            report = import_path(run, tmp_path / "backup.db")
            assert (len(report.skipped), len(report.files)) == (6, 6)
        assert (_facts(run), run.sessions(), run.weight_versions()) == (before, sessions, versions)
        run.delete_rollout(0)
        assert [each.rollout_id for each in import_path(run, tmp_path / "backup.db").recorded] == [0]
        assert store.verify().ok


def test_an_import_does_not_change_what_the_session_under_way_needs(store_url: str, tmp_path: Path) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        for number in range(6):
            run.record_train(number, make_train_output(1, 1, seed=number), state={"sample_offset": number})
        run.recovery.record_checkpoint(4)
    with SampleStore.open(tmp_path / "other.db") as other:
        there = other.run("r")
        there.recovery.begin_session(checkpoint_rollout_id=9, lineage={"lr": 1})
        there.record_train(10, make_train_output(1, 1), state={"sample_offset": 10})
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, connection:
        connection.execute("UPDATE sessions SET host = 'elsewhere'")
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=1, lineage={"lr": 1})
        assert len(import_path(run, tmp_path / "other.db").recorded) == 1
        report = run.prune(keep_arrays_last=1)
        assert (report.n_pruned, report.n_needed) == (1, 5)
        assert [info.rollout_id for info in run.resume(checkpoint_rollout_id=1).complete] == [2, 3, 4, 5]
        for number in range(2, 6):
            assert_same(run.load_train(number, sample_type=Sample), make_train_output(1, 1, seed=number))
        assert [each.checkpoint_rollout_id for each in run.sessions()] == [-1, 1, None]


def test_nothing_of_an_imported_run_is_pruned_that_could_be_resumed_from_whatever_it_begins_with(
    store_url: str, tmp_path: Path
) -> None:
    _spool(tmp_path / "old.db", [3, 4, 5], {"lr": 1})
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        import_path(run, tmp_path / "old.db")
        assert run.prune(keep_arrays_last=1).n_needed == 2
        assert [info.rollout_id for info in run.resume(checkpoint_rollout_id=3).complete] == [4, 5]
        run.recovery.record_checkpoint(5)
        assert run.prune(keep_arrays_last=1).n_pruned == 2


@dataclass
class _Older:
    """A sample class of another framework, or of an older version, which lacks much of ours."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"

    @dataclass
    class SpecInfo:
        spec_accept_token_num: int = 0
        spec_draft_token_num: int = 0
        spec_verify_ct: int = 0
        completion_token_num: int = 0

    index: int | None = None
    group_index: int | None = None
    prompt: str = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    reward: float | None = None
    status: Status = Status.PENDING
    spec_info: SpecInfo = field(default_factory=SpecInfo)

    @staticmethod
    def from_dict(_: Any) -> _Older:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError


def test_samples_of_another_framework_come_along_with_their_attributes_and_no_others(
    store_url: str, tmp_path: Path
) -> None:
    sample = _Older(0, 0, "p", [1, 2], "r", 1.0, _Older.Status.COMPLETED, _Older.SpecInfo(1, 2, 3, 4))
    sample.adapter = {"nested": _Older(1), "turns": [_Older(2, tokens=[3])]}  # type: ignore[attr-defined]
    train = RolloutFnTrainOutput([[sample], [_Older(3, 1)]])
    measured = RolloutFnEvalOutput({"e": {"rewards": [1.0], "samples": [sample]}})
    with SampleStore.open(tmp_path / "old.db") as store:
        store.run("r").record_train(0, train, state={"buffer": [[sample]]})
        store.run("r").record_eval(0, measured)
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        assert len(import_path(run, tmp_path / "old.db").recorded) == 2
        assert_same(run.load_train(0, sample_type=_Older), train)
        assert_same(run.load_eval(0, sample_type=_Older), measured)
        assert_same(run.recovery.load_state(0, sample_type=_Older), {"buffer": [[sample]]})
        run.record_train(1, [[Sample(metadata={"kept": Sample(prefix_cache_info=Sample.PrefixCacheInfo(5, 6))})]])
        kept = run.load_train(1, sample_type=_Older).samples[0][0].metadata["kept"]
        assert (type(kept), kept.prefix_cache_info) == (_Older, Sample.PrefixCacheInfo(5, 6))
        assert run.load_train(0, sample_type=Sample).samples[0][0].spec_info.completion_token_num == 4
        assert store.verify().ok


def test_runs_of_another_store_are_never_mixed(store_url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with SampleStore.open(old) as other:
        for name in "ab":
            other.run(name).record_train(0, [one_sample(0, name, 1.0)])
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        report = import_path(run, old)
        (refused,) = report.failed
        assert (report.recorded, refused.rollout_id) == ((), None)
        assert refused.reason.startswith("the store has 2 runs, 'a', 'b', and none is called 'r'; say which to take")
        (refused,) = import_path(run, old, from_run="c").failed
        assert refused.reason == "the store has no run 'c'; it holds 'a', 'b'"
        assert len(import_path(run, old, from_run="b").recorded) == 1
        assert len(import_path(store.run("a"), old).recorded) == 1
        assert [(each.label, each.session) for each in run.weight_versions()] == [("b", 1)]
        assert [(info.rollout_id, info.attempt) for info in run.rollouts(attempts=True)] == [(0, 1)]
    done = invoke("--store", store_url, "import", str(old), "--run", "r")
    assert done.exit_code == 1 and "--from-run" in done.stderr
    done = invoke("--store", store_url, "import", str(old), "--run", "new", "--from-run", "a")
    assert done.exit_code == 0
    with SampleStore.open(store_url) as store:
        assert [each.label for each in store.run("new", create=False).weight_versions()] == ["a"]


def test_what_was_pruned_is_named_and_the_rest_comes_in(store_url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with SampleStore.open(old) as store:
        run = store.run("r")
        for number in range(3):
            run.record_train(number, make_train_output(1, 2, seed=number), state={"sample_offset": number})
            run.record_eval(number, make_eval_output(seed=number))
        run.recovery.record_checkpoint(2)
        run.prune(keep_arrays_last=1)
        run.record_train(0, make_train_output(1, 1, seed=9))
    lost = [("train", 0), ("eval", 0), ("train", 1), ("eval", 1)]
    kept = [("train", 0), ("train", 2), ("eval", 2)]
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        for n_recorded, n_skipped in ((3, 0), (0, 3)):
            report = import_path(run, old)
            assert sorted((each.kind, each.rollout_id) for each in report.failed) == sorted(lost)
            assert (len(report.recorded), len(report.skipped)) == (n_recorded, n_skipped)
        assert sorted((info.kind, info.rollout_id) for info in run.rollouts(attempts=True)) == sorted(kept)
        assert_same(run.load_train(0, sample_type=Sample), make_train_output(1, 1, seed=9))
        assert_same(run.load_train(2, sample_type=Sample), make_train_output(1, 2, seed=2))
        assert run.recovery.load_state(2) == {"sample_offset": 2}
    reasons = [each.reason for each in report.failed]
    what = "the arrays of attempt 1 of train rollout 0 of run 'r' were pruned"
    assert f"{what}; what is left of it comes along only with `slime-store db copy`" in reasons
    done = invoke("--store", store_url, "import", str(old), "--run", "r", "--format", "csv")
    assert done.exit_code == 1 and all(reason in done.stderr for reason in reasons)


def test_a_damaged_rollout_of_a_store_is_named_and_the_rest_comes_in(store_url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    _spool(old, [0, 1, 2], {})
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE sample_arrays SET data = x'00' WHERE rollout_pk = 2")
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        report = import_path(run, old)
        assert [(each.action, each.rollout_id) for each in report.files] == [
            ("recorded", 0),
            ("failed", 1),
            ("recorded", 2),
        ]
        assert "attempt 1 of train rollout 1 of run 'r': stored bytes are damaged" in report.failed[0].reason
        assert [info.rollout_id for info in run.rollouts()] == [0, 2]


def _facts(run: Run) -> list[tuple[Any, ...]]:
    """What the records of a run say of its rollouts, apart from keys."""
    return [
        (info.kind, info.rollout_id, info.attempt, info.metrics, info.placeholders, info.started_at, info.finished_at)
        for info in run.rollouts(attempts=True)
    ]


def test_what_is_known_of_a_rollout_comes_along_whole(store_url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with SampleStore.open(old) as store:
        run = store.run("r")
        run.record_weight_version("3", params=[ParamInfo("w", "bf16", (1,), {}, 2, 0)])
        run.record_weight_version("unused", metadata={"note": "hello"})
        run.record_train(0, RolloutFnTrainOutput([one_sample(0, "3", 1.0)], {"m": 1.0}), state={"cursor": 1})
        lossy = [[Sample(index=0, group_index=0, metadata={"handle": object()})]]
        run.record_train(1, lossy, strict=False, state={"cursor": 2, "handle": object()})
        run.record_eval(0, make_eval_output(seed=1), weight_version="7", state={"eval": 5})
        versions = [(each.label, each.first_seen_at, each.params, each.metadata) for each in run.weight_versions()]
        facts, summary = _facts(run), eval_summary_df(run)
    assert [len(fact[4]) for fact in facts] == [0, 2, 0]
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        report = import_path(run, old)
        assert [each.placeholders for each in report.recorded] == [fact[4] for fact in facts]
        assert_same(_facts(run), facts)
        assert len(import_path(run, old).skipped) == 3
        found = [(each.label, each.first_seen_at, each.params, each.metadata) for each in run.weight_versions()]
        assert_same(found, versions)
        columns = ["dataset", "weight_version", "n_samples", "reward_mean"]
        assert eval_summary_df(run)[columns].equals(summary[columns])
        assert run.recovery.load_state(0) == {"cursor": 1}
        assert load_state(run._handle, "r", run._pk, "eval", 0, None, Sample) == {"eval": 5}
        assert store.verify().ok


def test_what_a_file_tells_of_a_weight_version_adds_to_what_is_known(store_url: str, tmp_path: Path) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.record_weight_version("1", metadata={"first": True})
        run.record_weight_version("2")
        with SampleStore.open(tmp_path / "spool.db") as spool:
            for label in "321":
                spool.run("r").record_weight_version(label, metadata={"label": label})
        for _ in range(2):
            assert import_path(run, tmp_path / "spool.db").files == ()
        found = [(each.session, each.label, each.ordinal, each.metadata) for each in run.weight_versions()]
        expected: list[Any] = [{"first": True}, {"label": "2"}, {"label": "3"}]
        assert found == [(1, str(number), number, notes) for number, notes in enumerate(expected, 1)]
        assert store.verify().ok


def test_what_a_dump_held_comes_along_from_the_store_that_it_was_imported_into(store_url: str, tmp_path: Path) -> None:
    import torch

    torch.save({"rollout_id": 4, "samples": [vars(one_sample(0, "1", 1.0)[0])], "args": {"lr": 1}}, tmp_path / "4.pt")
    with SampleStore.open(tmp_path / "old.db") as store:
        (first,) = import_path(store.run("r"), tmp_path / "4.pt").recorded
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        (second,) = import_path(run, tmp_path / "old.db").recorded
        assert (first.nesting, second.nesting) == ("inferred", "inferred")
        assert find_extras(run, "train", 4, None) == (1, {"args": {"lr": 1}})
