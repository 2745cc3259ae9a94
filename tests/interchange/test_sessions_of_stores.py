"""Whose weights generated what an imported store holds: each sample's labels go to the session that they are of."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slime_store import RolloutFnTrainOutput, Run, SampleStore
from slime_store.interchange import import_path
from slime_store.store.prepared import PreparedRollout, prepare_train
from slime_store.store.requests import JournalClearing
from tests.interchange.given import by_version, one_sample
from tests.services.tables import execute, rows


def test_labels_of_two_sessions_of_one_process_number_stay_apart(store_url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    for number in range(3):  # as in a container, where each process has the same number
        with SampleStore.open(old) as store:
            store.run("r").record_train(number, [one_sample(number, "1", float(number))])
    expected = [(number + 1, "1", 1, float(number)) for number in range(3)]
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        for _ in range(2):
            import_path(run, old)
            assert by_version(run) == expected
            assert [info.session for info in run.rollouts()] == [1, 2, 3]


def test_a_spool_of_a_process_that_never_reached_the_store_is_not_that_of_the_one_before(
    store_url: str, tmp_path: Path
) -> None:
    """Restarted containers keep their host name, and each process has the same number in them."""
    run_one = [sys.executable, "-c", ANOTHER_PROCESS, store_url]
    subprocess.run(run_one, check=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    execute(store_url, f"UPDATE sessions SET host = '{socket.gethostname()}', pid = {os.getpid()}")
    with SampleStore.open(tmp_path / "spool.db") as spool:
        spool.run("r").record_train(1, [one_sample(1, "1", 1.0)])
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        for _ in range(2):
            import_path(run, tmp_path / "spool.db")
            assert by_version(run) == [(1, "1", 1, 0.0), (2, "1", 1, 1.0)]


def test_a_spool_of_an_earlier_process_leaves_adoptable_what_came_after_it(store_url: str, tmp_path: Path) -> None:
    output = RolloutFnTrainOutput([one_sample(0, "1", 1.0)])
    with SampleStore.open(tmp_path / "spool.db") as spool:  # of a process that never reached the store
        run = spool.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        for rollout_id in range(3):
            run.record_train(rollout_id, output, state={"cursor": rollout_id})
    subprocess.run(
        [sys.executable, "-c", "import sys\n" + LATER_PROCESS, store_url],
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        import_path(run, tmp_path / "spool.db")
        point = run.resume(checkpoint_rollout_id=2, lineage={"lr": 1})
        assert ([info.rollout_id for info in point.complete], point.refused) == ([3, 4], None)
        run.prune(keep_arrays_last=1, keep_rollouts_last=1)
        assert [info.rollout_id for info in run.rollouts()] == [2, 3, 4]


@pytest.mark.parametrize("other_lineage", [False, True])
def test_what_a_process_spooled_before_the_store_came_back_is_of_its_session(
    store_url: str, tmp_path: Path, other_lineage: bool
) -> None:
    with SampleStore.open(store_url) as store, SampleStore.open(tmp_path / "spool.db") as spool:
        spooled, run = spool.run("r"), store.run("r")
        spooled.recovery.begin_session(checkpoint_rollout_id=None, lineage={"lr": 1 + other_lineage})
        spooled.record_train(0, [one_sample(0, "1", 1.0)], state={"cursor": 0})
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        for rollout_id in (1, 2):
            run.record_train(rollout_id, [one_sample(rollout_id, "1", 1.0)], state={"cursor": rollout_id})
    with SampleStore.open(store_url) as store:  # a session that the same process begins later
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        run.record_train(3, [one_sample(3, "1", 2.0)])
        for _ in range(2):
            import_path(run, tmp_path / "spool.db")
            sessions = {info.rollout_id: info.session for info in run.rollouts()}
            assert sessions == {0: 3 if other_lineage else 1, 1: 1, 2: 1, 3: 2}
        if not other_lineage:
            assert by_version(run) == [(1, "1", 3, 1.0), (2, "1", 1, 2.0)]
            point = run.resume(checkpoint_rollout_id=-1, lineage={"lr": 1})
            assert [info.rollout_id for info in point.complete][:3] == [0, 1, 2]


def test_a_spool_is_not_of_a_session_that_another_process_of_the_number_began_later(
    store_url: str, tmp_path: Path
) -> None:
    with SampleStore.open(tmp_path / "spool.db") as spool:
        spool.run("r").record_train(0, [one_sample(0, "1", 1.0)])
    run_one = [sys.executable, "-c", ANOTHER_PROCESS, store_url]
    subprocess.run(run_one, check=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    execute(store_url, f"UPDATE sessions SET host = '{socket.gethostname()}', pid = {os.getpid()}")
    for client in (None, "{}"):  # "{}": of a version that did not name the process
        if client is not None:
            execute(store_url, f"UPDATE sessions SET client = '{client}' WHERE ordinal = 1")
        with SampleStore.open(store_url) as store:
            run = store.run("r")
            import_path(run, tmp_path / "spool.db")
            assert [info.session for info in run.rollouts(attempts=True)] == [1, 2]
            run.delete_rollout(0, attempt=2)


LATER_PROCESS = """
from slime_store import Sample, SampleStore
with SampleStore.open(sys.argv[1]) as store:
    run = store.run("r")
    run.recovery.begin_session(checkpoint_rollout_id=2, lineage={"lr": 1})
    for rollout_id in (3, 4):
        run.record_train(rollout_id, [[Sample(group_index=0, index=0)]], state={"cursor": rollout_id})
    run.recovery.record_checkpoint(2)
"""

ANOTHER_PROCESS = """
import sys
from slime_store import Sample, SampleStore
with SampleStore.open(sys.argv[1]) as store:
    store.run("r").record_train(0, [[Sample(group_index=0, index=0, weight_versions=["1"], reward=0.0)]])
"""


def _died_with_a_finished_group(store_url: str, lr: int = 1, label: str = "5", reward: float = 1.0) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": lr})
        journal = run.recovery.journal()
        journal.put(0, one_sample(0, label, reward))
        journal.close()


def _with_the_served_group(run: Run) -> PreparedRollout:
    """What the next session makes of it: the group of the journal, and one of its own."""
    point = run.resume(lineage={"lr": 1})
    served = [group for group in point.journalled_groups if group[0].group_index == 0][-1]  # as the plug-in does
    clearing = JournalClearing(served=frozenset({0}), whole=True, sessions=run.recovery.journal_sessions(point))
    output = RolloutFnTrainOutput([served, one_sample(1, "5", 0.0)])
    return prepare_train(0, output, state={"sample_offset": 1}, clear_journal=clearing)


SERVED = [(1, "5", 1, 1.0), (2, "5", 1, 0.0)]


@pytest.mark.parametrize("is_cleared", [False, True], ids=["the journal is there", "the journal is gone"])
def test_a_spooled_group_that_was_served_keeps_the_session_that_generated_it(
    store_url: str, tmp_path: Path, is_cleared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _died_with_a_finished_group(store_url)
    with SampleStore.open(store_url) as store, SampleStore.open(tmp_path / "spool.db") as spool:
        run, spooled = store.run("r"), spool.run("r")
        for each in (run, spooled):
            each.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        journal = run.recovery.journal()
        journal.put(0, one_sample(1, "5", 0.0))
        journal.flush()
        _with_the_served_group(run).store(spooled)
        spooled.record_train(1, [one_sample(2, "6", 2.0)], state={"sample_offset": 2})
        if is_cleared:  # by what it has recorded since
            prepare_train(2, [one_sample(3, "6", 2.0)], clear_journal=JournalClearing(whole=True)).store(run)
            run.delete_rollout(2)
        import_path(run, tmp_path / "spool.db")
        import_path(run, tmp_path / "spool.db")
        assert by_version(run) == [*SERVED, (2, "6", 1, 2.0)]
        assert [info.session for info in run.rollouts()] == [2, 2]
        point = run.resume(checkpoint_rollout_id=-1, lineage={"lr": 1})
        assert (point.next_rollout_id, point.refused, point.journalled_groups) == (2, None, [])
        assert rows(store_url, "SELECT count(*) FROM sessions") == [(2,)]
        assert store.verify().ok and spool.verify().ok
    assert "two processes" not in caplog.text  # the spool has two sessions, of which one is only named


@pytest.mark.parametrize("is_told", [True, False], ids=["told by the plug-in", "found in the journal"])
def test_a_served_group_belongs_to_the_session_that_generated_it_and_not_to_one_of_another_lineage(
    store_url: str, is_told: bool
) -> None:
    _died_with_a_finished_group(store_url, lr=2, label="9", reward=0.5)
    _died_with_a_finished_group(store_url, reward=0.25)
    _died_with_a_finished_group(store_url)
    _died_with_a_finished_group(store_url, lr=2, label="9", reward=0.5)
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1})
        point = run.resume(lineage={"lr": 1})
        assert [group[0].reward for group in point.journalled_groups] == [0.25, 1.0]
        assert point.journalled_sessions == {0: 3}
        prepared = _with_the_served_group(run)
        if not is_told:
            clearing = JournalClearing(served=frozenset({0}), whole=True)
            prepared = replace(prepared, _clear_journal=clearing)
        prepared.store(run)
        assert by_version(run) == [(3, "5", 1, 1.0), (5, "5", 1, 0.0)]
        assert store.verify().ok


def test_a_spooled_group_that_was_served_keeps_its_session_in_another_store_too(store_url: str, tmp_path: Path) -> None:
    _died_with_a_finished_group(str(tmp_path / "real.db"))
    with SampleStore.open(tmp_path / "real.db") as store, SampleStore.open(tmp_path / "spool.db") as spool:
        run = store.run("r")
        _with_the_served_group(run).store(spool.run("r"))
        _with_the_served_group(run).store(run)
        direct = by_version(run)
    assert direct == SERVED
    for file in ("spool.db", "real.db"):
        with SampleStore.open(store_url) as store:
            run = store.run(file)
            import_path(run, tmp_path / file)
            found = by_version(run)
            assert {row[0] for row in found} == {1, 2}
            assert sorted(row[1:] for row in found) == sorted(row[1:] for row in SERVED)


def test_journalled_groups_that_an_imported_rollout_has_not_stay(store_url: str, tmp_path: Path) -> None:
    with SampleStore.open(store_url) as store, SampleStore.open(tmp_path / "spool.db") as spool:
        run = store.run("r")
        journal = run.recovery.journal()
        for rollout_id, index in ((0, 0), (0, 1), (1, 2), (1, 3)):
            journal.put(rollout_id, one_sample(index, "5", 1.0))
        journal.flush()
        output = RolloutFnTrainOutput([one_sample(index, "5", 1.0) for index in (0, 1, 2)])
        spool.run("r").record_train(0, output, state={"sample_offset": 1})
        import_path(run, tmp_path / "spool.db")
        left = [group[0].group_index for group in run.resume(checkpoint_rollout_id=-1).journalled_groups]
        assert left == [2, 3]  # the one that was journalled for a later rollout may be another one
