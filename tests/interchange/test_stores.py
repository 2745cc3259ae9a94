"""Spool files, and other stores, come in whole and once."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from slime_store import Sample, SampleStore
from slime_store.interchange import export_run, import_path
from slime_store.testing import assert_same
from slime_store.testing.factories import make_eval_output, make_train_output
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
