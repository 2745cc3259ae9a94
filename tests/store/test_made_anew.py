"""What was opened is no longer what is there: a store made anew or upgraded, a run that was deleted."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, SampleStore
from slime_store.dataframes import samples_df
from slime_store.errors import DatabaseError, NewerSchemaError, RunNotFoundError
from slime_store.schema import HEAD, VERSION_TABLE
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import opened
from tests.services.tables import execute

OPERATIONS: list[Callable[[Run], Any]] = [
    lambda run: run.rollouts(),
    lambda run: run.load_train(0),
    lambda run: list(run.iter_samples()),
    lambda run: samples_df(run),
    lambda run: run.resume(),
    lambda run: run.record_train(1, make_train_output(1, 1)),
    lambda run: run.record_weight_version("1", metadata={"note": "x"}),
    lambda run: run.recovery.record_checkpoint(0),
    lambda run: run.recovery.load_state(0),
    lambda run: run.pin(0),
    lambda run: run.prune(keep_arrays_last=0),
    lambda run: run.delete_rollout(0),
]


def theirs(url: str) -> None:
    """Make a store with another run under the keys of the one that was there."""
    with opened(url) as store:
        store.run("theirs").record_train(0, make_train_output(1, 2))


def test_a_schema_that_was_made_anew_under_an_open_run_is_neither_read_nor_written_to(postgres_url: str) -> None:
    with SampleStore.open(postgres_url) as store:
        run = store.run("mine")
        run.record_train(0, make_train_output(1, 1))
        execute(postgres_url, "DROP SCHEMA slime_store CASCADE")
        theirs(postgres_url)
        for operation in OPERATIONS:
            with pytest.raises(DatabaseError, match="made anew"):
                operation(run)
    with SampleStore.open(postgres_url) as store:
        assert_same(store.run("theirs", create=False).load_train(0), make_train_output(1, 2))
        assert store.run("theirs").pins() == []


def test_an_unpickled_run_is_looked_for_by_its_name(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    with opened(url) as store:
        store.run("mine").record_train(0, make_train_output(1, 1))
        pickled = pickle.dumps(store.run("mine"))
    again = pickle.loads(pickled)
    assert again.name == "mine"
    assert_same(again.load_train(0), make_train_output(1, 1))
    for file in tmp_path.iterdir():
        file.unlink()
    theirs(url)
    for operation in OPERATIONS:
        with pytest.raises(RunNotFoundError, match="no run 'mine'; it holds 'theirs'"):
            operation(pickle.loads(pickled))
    with opened(url) as store:
        assert_same(store.run("theirs").load_train(0), make_train_output(1, 2))


def test_a_store_that_was_upgraded_by_a_newer_version_is_no_longer_written_to(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("run")
        run.record_train(0, make_train_output(1, 1))
        execute(store_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        with pytest.raises(NewerSchemaError, match="9999"):
            run.record_train(1, make_train_output(1, 1))
        with pytest.raises(NewerSchemaError):
            run.pin(0)
        execute(store_url, f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'")
        run.record_train(1, make_train_output(1, 1))
        assert [info.rollout_id for info in run.rollouts()] == [0, 1]


def test_a_run_that_was_deleted_is_not_recorded_to(store_url: str) -> None:
    with opened(store_url) as store, opened(store_url) as other:
        run = store.run("gone")
        run.record_train(0, make_train_output(1, 1))
        other.run("there")
        other.delete_run("gone")
        with pytest.raises(RunNotFoundError, match="no run 'gone'; it holds 'there'"):
            run.record_train(1, make_train_output(1, 1))
        other.run("gone")
        with pytest.raises(RunNotFoundError, match="run 'gone' was deleted, and the one of this name now is another"):
            run.record_train(1, make_train_output(1, 1))
        assert other.stats().n_rollouts == 0
