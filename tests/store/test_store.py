"""The store itself: opening, runs, sessions, statistics, reading only, pickling, closing."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import make_url, text

from slime_store import Sample, SampleFilter, SampleStore
from slime_store.errors import (
    InvalidRunNameError,
    ReadOnlyStoreError,
    RolloutNotFoundError,
    RunNotFoundError,
    StoreClosedError,
    StoreNotFoundError,
    StoreNotPicklableError,
)
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.cases.children import in_a_new_process
from tests.services.tables import counts, rows, value

# -- runs ----------------------------------------------------------------------------------------------


def test_runs_are_listed_oldest_first_and_count_each_rollout_once(store_url: str) -> None:
    with opened(store_url) as store:
        assert store.runs() == []
        for name in ("b", "a", "Ä/ö 'quoted'"):
            store.run(name)
        run = store.run("b")
        for rollout_id in (0, 1, 0, 0):
            run.record_train(rollout_id, make_train_output(1, 1))
        run.record_eval(0, make_eval_output({"d": 1}))
        infos = store.runs()
    assert [(info.name, info.n_rollouts) for info in infos] == [("b", 3), ("a", 0), ("Ä/ö 'quoted'", 0)]
    assert all(info.created_at.utcoffset() is not None for info in infos)


def test_a_run_keeps_the_first_config_that_it_is_given(store_url: str) -> None:
    configs: list[Any] = [None, {"lr": 1e-6, "betas": (0.9, 0.98)}, None, {}, {"x": float("nan")}]
    kept = []
    for config in configs:
        with opened(store_url) as store:
            store.run("a", config=config)
            kept.append(store.runs()[0].config)
    assert_same(kept, [None, configs[1], configs[1], configs[1], configs[1]])


def test_a_run_that_is_not_there_is_named_with_those_that_are(store_url: str) -> None:
    with opened(store_url) as store:
        store.run("here")
        with pytest.raises(RunNotFoundError, match=r"no run 'gone'.*'here'"):
            store.run("gone", create=False)
        assert [info.name for info in store.runs()] == ["here"]
        assert store.run("here", create=False).rollouts() == []


@pytest.mark.parametrize("name", ["", None, 3, "a\x00b", "\ud83d", b"bytes"])
def test_a_name_that_a_database_cannot_hold_is_refused(store_url: str, name: Any) -> None:
    with opened(store_url) as store:
        with pytest.raises(ValueError, match="name"):
            store.run(name)
        assert store.runs() == []


@pytest.mark.parametrize("letter", ["a", "\N{GRINNING FACE}"])
def test_a_new_run_has_a_name_that_every_index_takes(store_url: str, letter: str) -> None:
    random = "".join(chr(ord(letter) + byte % 26) for byte in os.urandom(600))  # which no database can compress
    with opened(store_url) as store:
        assert store.run(random).name == random
        with pytest.raises(InvalidRunNameError, match="has 601 characters, and a new one at most 600"):
            store.run(random + letter)
        with pytest.raises(RunNotFoundError):
            store.run(random + letter, create=False)
        assert [info.name for info in store.runs()] == [random]


def test_a_run_whose_name_is_longer_from_of_old_goes_on(store_url: str) -> None:
    name = "a" * 1000
    with opened(store_url) as store:
        store.run("a")
        with store._handle.writing("rename") as connection:
            connection.execute(text("UPDATE runs SET name = :name"), {"name": name})
        run = store.run(name, config={"lr": 1.0})
        assert run.record_train(0, make_train_output(1, 1)).run == name
        assert store.runs()[0].config == {"lr": 1.0}


# -- sessions -------------------------------------------------------------------------------------------


def _record_in_this_process(url: str, rollout_id: int) -> int:
    with run_of(url) as run:
        run.record_eval(rollout_id, {})
        session: int = run.record_train(rollout_id, make_train_output(1, 1)).session
    return session


@pytest.mark.slow_on_postgresql
def test_each_process_is_a_session_from_its_first_record_on(store_url: str) -> None:
    with run_of(store_url) as run:
        assert counts(store_url)["sessions"] == 0  # looking and opening is no session
        run.rollouts()
        assert [run.record_train(i, make_train_output(1, 1)).session for i in range(2)] == [1, 1]
        assert in_a_new_process(_record_in_this_process, store_url, 2) == 2
        assert run.record_train(3, make_train_output(1, 1)).session == 1
    assert _record_in_this_process(store_url, 4) == 3
    assert [session for (session,) in rows(store_url, "SELECT ordinal FROM sessions ORDER BY id")] == [1, 2, 3]
    with opened(store_url, read_only=True) as store:
        infos = store.run("contract", create=False).rollouts("train")
    assert [(info.rollout_id, info.session) for info in infos] == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 3)]


def test_each_run_counts_its_own_sessions(store_url: str) -> None:
    with opened(store_url) as store:
        for name in ("a", "b"):
            assert store.run(name).record_train(0, make_train_output(1, 1)).session == 1
            assert store.run(name).record_train(1, make_train_output(1, 1)).session == 1
    query = "SELECT r.name, s.ordinal FROM sessions s JOIN runs r ON r.id = s.run_pk ORDER BY r.name"
    assert rows(store_url, query) == [("a", 1), ("b", 1)]


def _record_before_and_after_a_fork(url: str) -> int:
    with run_of(url) as run:
        run.record_train(0, make_train_output(1, 1))
        child = os.fork()
        if child == 0:
            os._exit(run.record_train(1, make_train_output(1, 1)).session)
        session = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        run.record_train(2, make_train_output(1, 1))
    return session


@pytest.mark.slow_on_postgresql
def test_a_forked_child_is_a_session_of_its_own(store_url: str) -> None:
    assert in_a_new_process(_record_before_and_after_a_fork, store_url) == 2
    query = "SELECT r.rollout_id, s.ordinal FROM rollouts r JOIN sessions s ON s.id = r.session_pk ORDER BY 1"
    assert rows(store_url, query) == [(0, 1), (1, 2), (2, 1)]


# -- statistics -----------------------------------------------------------------------------------------


def test_stats_count_what_is_there(store_url: str) -> None:
    with opened(store_url) as store:
        empty = store.stats()
        assert (empty.n_runs, empty.n_rollouts, empty.n_samples, empty.n_tokens, empty.n_blobs) == (0, 0, 0, 0, 0)
        run = store.run("a")
        store.run("b")
        shared = torch.ones(500)
        output = make_train_output(2, 3, n_prompt_tokens=5, n_tokens=7, multimodal_train_inputs={"x": shared})
        run.record_train(0, output)
        run.record_train(0, output)
        stats = store.stats()
    assert (stats.n_runs, stats.n_rollouts, stats.n_samples, stats.n_tokens) == (2, 2, 12, 12 * 12)
    assert (stats.n_prompts, stats.n_blobs) == (2, 1)
    assert 0 < stats.blob_bytes < stats.size_bytes
    assert stats.url == store.url
    password = make_url(store_url).password
    assert password is None or password not in stats.url + repr(store) + repr(run)


# -- reading only ---------------------------------------------------------------------------------------


def test_a_read_only_store_refuses_every_write_at_once_and_says_which(store_url: str) -> None:
    output = make_train_output(1, 2)
    with run_of(store_url) as run:
        run.record_train(0, output)
        before = counts(store_url)
    with opened(store_url, read_only=True) as store:
        run = store.run("contract")
        for write, words in (
            (lambda: run.record_train(1, output), "record a rollout"),
            (lambda: run.record_train(1, output, background=True), "record a rollout"),
            (lambda: run.record_eval(1, make_eval_output()), "record a rollout"),
            (lambda: run.record_weight_version("1"), "record a weight version"),
            (lambda: run.delete_rollout(0), "delete a rollout"),
        ):
            with pytest.raises(ReadOnlyStoreError, match=words):
                write()
        with pytest.raises(RunNotFoundError):
            store.run("another")
        assert_same(run.load_train(0), output)
        assert len(list(run.iter_samples())) == 2
        assert (store.stats().n_samples, len(run.rollouts()), len(run.weight_versions())) == (2, 1, 1)
        store.flush()
    assert counts(store_url) == before


def test_reading_changes_no_byte_of_the_file(sqlite_url: str) -> None:
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(2, 2))
    path = Path(str(make_url(sqlite_url).database))
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    for read_only in (True, False):
        with opened(sqlite_url, read_only=read_only) as store:
            run = store.run("contract", create=False)
            run.load_train(0)
            list(run.iter_samples(SampleFilter(reward_min=0)))
            run.rollouts()
            store.stats()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_a_reader_sees_what_a_writer_adds(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(1, 1))
        with opened(store_url, read_only=True) as store:
            reader = store.run("contract", create=False)
            for rollout_id in range(1, 4):
                run.record_train(rollout_id, make_train_output(1, 1, seed=rollout_id))
                assert len(reader.rollouts()) == rollout_id + 1
                assert_same(reader.load_train(rollout_id), make_train_output(1, 1, seed=rollout_id))


def test_a_store_that_is_not_there_is_not_made_by_a_reader(store_url: str) -> None:
    with pytest.raises(StoreNotFoundError, match="there is no store"):
        SampleStore.open(store_url, read_only=True)


# -- pickling, threads, closing -----------------------------------------------------------------------


@pytest.mark.slow_on_postgresql
def test_a_pickled_store_and_run_reopen_by_their_address(store_url: str) -> None:
    output = make_train_output(1, 2)
    with opened(store_url) as store:
        run = store.run("contract")
        run.record_train(0, output)
        data = pickle.dumps((store, run))
    copied_store, copied_run = pickle.loads(data)  # the original is closed
    assert_same(copied_run.load_train(0), output)
    assert copied_run.record_train(1, output).session == 2
    assert copied_run.name == "contract"
    assert [info.n_rollouts for info in copied_store.runs()] == [2]
    assert in_a_new_process(_load_with, copied_run) == [sample.tokens for sample in output.samples[0]]
    copied_store.close()
    copied_run._handle.close()


def _load_with(run: Any) -> list[list[int]]:
    try:
        return [sample.tokens for sample in run.load_train(0).samples[0]]
    finally:
        run._handle.close()


def test_a_pickled_reader_is_a_reader(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(1, 1))
    with opened(store_url, read_only=True) as store:
        copied = pickle.loads(pickle.dumps(store))
    with copied, pytest.raises(ReadOnlyStoreError):
        copied.run("contract").delete_rollout(0)


def test_a_store_in_memory_works_and_is_not_pickled() -> None:
    with opened(":memory:") as store:
        run = store.run("a")
        outputs = [make_train_output(1, 2, seed=seed) for seed in range(6)]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(run.record_train, range(6), outputs))
            assert_same(list(pool.map(run.load_train, range(6))), outputs)
        run.record_train(6, outputs[0], background=True)
        store.flush()
        assert len(run.rollouts()) == 7
        for each in (store, run):
            with pytest.raises(StoreNotPicklableError):
                pickle.dumps(each)


def test_threads_record_and_read_at_once(store_url: str) -> None:
    with run_of(store_url) as run, ThreadPoolExecutor(4) as pool:
        infos = list(pool.map(lambda seed: run.record_train(0, make_train_output(1, 2, seed=seed)), range(8)))
        loaded = list(pool.map(lambda info: run.load_train(0, attempt=info.attempt), infos))
    assert sorted(info.attempt for info in infos) == list(range(1, 9))
    assert {info.session for info in infos} == {1}
    assert_same(loaded, [make_train_output(1, 2, seed=seed) for seed in range(8)])


def test_a_closed_store_says_so_and_closing_twice_is_no_error(store_url: str) -> None:
    store = SampleStore.open(store_url)
    run = store.run("a")
    run.record_train(0, make_train_output(1, 1))
    pages = run.iter_samples()
    store.close()
    store.close()
    threads = threading.active_count()
    for use in (
        lambda: store.run("a"),
        store.runs,
        store.stats,
        lambda: run.record_train(0, make_train_output(1, 1)),
        lambda: run.record_train(0, make_train_output(1, 1), background=True),
        lambda: run.record_eval(0, {}),
        lambda: run.record_weight_version("1"),
        lambda: run.load_train(0),
        lambda: run.delete_rollout(0),
        lambda: next(pages),
        run.rollouts,
    ):
        with pytest.raises(StoreClosedError):
            use()
    assert threading.active_count() == threads
    assert value(store_url, "SELECT count(*) FROM rollouts") == 1


def test_leaving_the_with_block_closes_the_store(store_url: str) -> None:
    with SampleStore.open(store_url) as store:
        store.run("a")
    with pytest.raises(StoreClosedError):
        store.runs()


def test_what_is_not_recorded_is_an_error_that_names_the_nearest(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in (1, 3, 30):
            run.record_train(rollout_id, [[make_sample(0)]])
        with pytest.raises(RolloutNotFoundError, match=r"no train rollout 7; nearest recorded: 1, 3, 30"):
            run.load_train(7)
        with pytest.raises(RolloutNotFoundError, match="no eval rollout 3"):
            run.load_eval(3)
        with pytest.raises(RolloutNotFoundError, match="attempt 2 of train rollout 3"):
            run.load_train(3, attempt=2)


def test_samples_come_back_in_the_class_asked_for(store_url: str) -> None:
    class OwnSample(Sample):
        pass

    with run_of(store_url) as run:
        run.record_train(0, [[make_sample(0, metadata={"inner": make_sample(1)})]])
    (loaded,) = loaded_train(store_url, 0, sample_type=OwnSample).samples[0]
    assert type(loaded) is OwnSample
    assert type(loaded.metadata["inner"]) is OwnSample
    for no_sample in (dict, int, type):
        with pytest.raises(TypeError, match="Sample class"):
            loaded_train(store_url, 0, sample_type=no_sample)
