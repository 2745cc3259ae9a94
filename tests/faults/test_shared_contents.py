"""Several runs of one store that have the same prompts and pictures: they neither deadlock nor hold each other up."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from slime_store import RolloutFnTrainOutput, Sample
from slime_store.database import reconnection
from slime_store.errors import StoreBusyError, TransactionAbortedError
from slime_store.store import SampleStore
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import opened

N_GROUPS = 4


def group(number: int, rollout_id: int = 0) -> list[Sample]:
    """Two samples of a prompt and a picture that every run has in this rollout."""
    picture = np.full(3000, rollout_id * 1000 + number, dtype=np.int32)
    return [
        Sample(
            group_index=number,
            index=2 * number + i,
            prompt=f"question {number} of {rollout_id}",
            tokens=[1, 2, 3],
            response="x",
            multimodal_train_inputs={"pixels": picture},
        )
        for i in range(2)
    ]


def in_threads(*works: Any) -> None:
    errors: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []


def test_runs_that_journal_and_record_the_same_prompts_do_not_deadlock(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", ())  # it is not put right by trying again
    n_rollouts = 2
    with opened(store_url) as store, opened(store_url) as other, opened(store_url) as third:
        runs = [each.run(name) for each, name in ((store, "a"), (other, "b"), (third, "c"))]
        errors: list[Exception] = []

        def journals(run: Any, seed: int) -> None:
            for rollout_id in range(n_rollouts):
                journal = run.recovery.journal(on_error=errors.append)
                for number in random.Random(seed + rollout_id).sample(range(N_GROUPS), N_GROUPS):
                    journal.put(rollout_id, group(number, rollout_id))
                journal.close()

        def records() -> None:
            for rollout_id in range(n_rollouts):
                output = RolloutFnTrainOutput([group(number, rollout_id) for number in range(N_GROUPS)])
                prepare_train(rollout_id, output, clear_journal=JournalClearing(whole=True)).store(runs[2])

        in_threads(lambda: journals(runs[0], 1), lambda: journals(runs[1], 2), records)
        assert errors == []
        for run in runs[:2]:
            assert len(run.resume().journalled_groups) == n_rollouts * N_GROUPS
        assert len(runs[2].rollouts()) == n_rollouts
        assert store.verify(grace_seconds=-1).problems == ()


def test_a_record_that_clears_the_journal_keeps_no_other_run_waiting(postgres_url: str) -> None:
    with SampleStore.open(postgres_url) as store, SampleStore.open(postgres_url, busy_timeout=5) as other:
        recorded: list[None] = []

        def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("INSERT INTO rollouts") and not recorded:
                recorded.append(None)  # in the midst of it
                other.run("b").record_train(0, RolloutFnTrainOutput([group(0)]))

        sa.event.listen(store._handle.engine, "before_cursor_execute", record)
        prepare_train(0, RolloutFnTrainOutput([group(1)]), clear_journal=JournalClearing(whole=True)).store(
            store.run("a")
        )
        assert recorded
        assert_same(other.run("b").load_train(0).samples, [group(0)])


def test_contents_that_a_record_clears_away_stay_for_whoever_is_about_to_refer_to_them(postgres_url: str) -> None:
    with SampleStore.open(postgres_url) as store, SampleStore.open(postgres_url, busy_timeout=5) as other:
        run = store.run("a")
        journal = run.recovery.journal()
        journal.put(0, group(0))
        journal.close()
        done: list[None] = []

        def clear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("INSERT INTO rollouts") and not done:
                done.append(None)  # what is shared has been found, and nothing refers to it yet
                output = RolloutFnTrainOutput([[Sample(group_index=0)]])
                prepare_train(0, output, clear_journal=JournalClearing(whole=True)).store(run)

        reader = other.run("b")
        sa.event.listen(other._handle.engine, "before_cursor_execute", clear)
        reader.record_train(0, RolloutFnTrainOutput([group(0)]))
        assert done
        assert_same(reader.load_train(0).samples, [group(0)])
        assert run.resume().journalled_groups == []
        assert store.verify(grace_seconds=-1).problems == ()


def test_a_late_rollout_leaves_the_journalled_groups_of_the_next(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("a")
        clearing = JournalClearing(groups=frozenset({0, 1}))
        late = prepare_train(0, RolloutFnTrainOutput([group(0)]), state={"cursor": 1}, clear_journal=clearing)
        journal = run.recovery.journal()
        journal.put(0, group(0))
        journal.put(1, group(1, 1))  # given back, handed out again and finished before rollout 0 is stored
        journal.close()
        late.store(run)
        assert_same(run.resume().journalled_groups, [group(1, 1)])


def test_a_transaction_that_the_server_ends_for_anothers_sake_is_tried_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.0, 0.0))
    with SampleStore.open(postgres_url) as store:
        run, left = store.run("a"), [2]

        def abort(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            if left[0] and "INTO rollouts" in statement:
                left[0] -= 1
                cursor.execute("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$")

        sa.event.listen(store._handle.engine, "before_cursor_execute", abort)
        assert run.record_train(0, RolloutFnTrainOutput([group(0)])).attempt == 1
        left[0] = 9
        with pytest.raises(TransactionAbortedError) as caught:
            run.record_train(1, RolloutFnTrainOutput([group(1)]))
        assert isinstance(caught.value, StoreBusyError)
        left[0] = 0
        assert [info.rollout_id for info in run.rollouts()] == [0]
