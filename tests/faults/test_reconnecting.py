"""Connections to PostgreSQL that end under reads, notes, pins, the journal, pruning, deleting: as if they had not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import psycopg
import pytest
from sqlalchemy import event

from slime_store import Run, SampleFilter, SampleStore, dataframes
from slime_store.database import reconnection
from slime_store.errors import ConnectionFailedError, RunNotFoundError
from slime_store.store.located import count_samples, iter_located, load_sample
from slime_store.testing import assert_same, make_eval_output, make_train_output
from slime_store.types import ParamInfo
from tests.faults.given import end_connections
from tests.faults.steps import Steps
from tests.services.postgres import PostgresServer
from tests.services.tables import value

pytestmark = pytest.mark.postgresql

LEARNT = SampleFilter(metadata={"source": "math"})

READS: dict[str, Callable[[SampleStore, Run], Any]] = {
    "load_train": lambda _, run: run.load_train(1),
    "load_eval": lambda _, run: run.load_eval(1),
    "load_batch": lambda _, run: run.load_batch(1),
    "iter_samples": lambda _, run: list(run.iter_samples(batch_size=2)),
    "iter_located": lambda _, run: list(iter_located(run, batch_size=3)),
    "load_sample": lambda _, run: load_sample(run, 1, 1, kind="eval"),
    "count_samples": lambda store, run: [count_samples(store), count_samples(run, LEARNT)],
    "rollouts": lambda _, run: [run.rollouts(), run.rollout(1), run.info(), run.pins()],
    "sessions": lambda _, run: [run.sessions(), run.weight_versions()],
    "resume": lambda _, run: [run.resume(), run.recovery.load_state(1)],
    "runs": lambda store, run: [store.run("faults"), store.runs(), run.sibling("faults"), store.stats().n_samples],
    "samples_df": lambda store, run: [
        dataframes.samples_df(store, LEARNT, columns=["index", "reward", "response", "prompt"]),
        dataframes.eval_df(run),
    ],
    "groups_df": lambda _, run: [dataframes.groups_df(run), dataframes.prompts_df(run)],
    "rollouts_df": lambda _, run: [dataframes.rollouts_df(run), dataframes.metrics_df(run)],
    "weight_versions_df": lambda _, run: [dataframes.weight_versions_df(run)],
    "evals": lambda _, run: [
        dataframes.eval_summary_df(run),
        dataframes.eval_compare_df(run, 0, 1),
        dataframes.eval_compare_summary_df(run, 0, 1),
    ],
}


def _journal(_store: SampleStore, run: Run) -> None:
    journal = run.recovery.journal(on_error=lambda error: pytest.fail(str(error)))
    for group in make_train_output(2, 2, seed=9).samples:
        journal.put(3, group)
        journal.flush()
    journal.close()


WRITES: dict[str, Callable[[SampleStore, Run], Any]] = {
    "note a checkpoint": lambda _, run: run.recovery.record_checkpoint(1),
    "begin a session": lambda _, run: run.recovery.begin_session(checkpoint_rollout_id=1, lineage={"seed": 1}),
    "adopt": lambda _, run: run.recovery.adopt(run.rollout(1)),
    "journal": _journal,
    "pin": lambda _, run: run.pin(1, note="why"),
    "unpin": lambda _, run: [run.unpin(2), run.unpin(1)],
    "weight version": lambda _, run: (
        run.record_weight_version("9", params=[ParamInfo("w", "bf16", (2,), {}, 4, 0)], metadata={"loss": 1.5}).label
    ),
    "delete a rollout": lambda _, run: [run.delete_rollout(1), run.delete_rollout(0, attempt=1)],
    "prune": lambda _, run: run.prune(keep_arrays_last=1, keep_rollouts_last=2),
    "delete a run": lambda store, run: store.delete_run(run.name),
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.01, 0.02))


@contextmanager
def _stepping(store: SampleStore, steps: Steps) -> Iterator[None]:
    """Count statements and commits of a store while the body runs."""
    engine = store._handle.engine
    dialect: Any = engine.dialect
    commit = dialect.do_commit

    def before(*args: Any) -> None:
        steps.step(f"before {args[2][:20]}")

    def after(*args: Any) -> None:
        steps.step(f"after {args[2][:20]}")

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    dialect.do_commit = steps._around("commit", commit)
    try:
        yield
    finally:
        dialect.do_commit = commit
        event.remove(engine, "before_cursor_execute", before)
        event.remove(engine, "after_cursor_execute", after)


@contextmanager
def _losing_answers(store: SampleStore, at: int | None) -> Iterator[list[Any]]:
    """Lose the answer to one COMMIT, of those that the body makes."""
    dialect: Any = store._handle.engine.dialect
    commit, made = dialect.do_commit, list[Any]()

    def commit_and_lose_the_answer(connection: Any) -> None:
        commit(connection)
        made.append(connection)
        if len(made) - 1 == at:
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    dialect.do_commit = commit_and_lose_the_answer
    try:
        yield made
    finally:
        dialect.do_commit = commit


def _fill(url: str, name: str, *, pin: bool = False) -> None:
    with SampleStore.open(url) as store:
        run = store.run(name, config={"lr": 1.0})
        for rollout_id in (0, 0, 1, 2):
            output = make_train_output(2, 2, seed=rollout_id, n_tokens=8)
            output.metrics["loss"] = 0.5
            output.samples[0][0].metadata = {"source": "math"}
            run.record_train(rollout_id, output, state={"cursor": rollout_id})
        for rollout_id in (0, 1):
            run.record_eval(rollout_id, make_eval_output({"gsm8k": 3}, seed=rollout_id, weight_version="1"))
        if pin:
            run.pin(1)


def _state(store: SampleStore, name: str) -> Any:
    """What a run is, without what differs from one run to the next."""
    try:
        run = store.run(name, create=False)
    except RunNotFoundError:
        return None
    point = run.resume()
    adopted = "SELECT count(*) FROM adoptions a JOIN sessions s ON s.id = a.session_pk JOIN runs r ON r.id = s.run_pk"
    return {
        "sessions": [(each.session, each.n_rollouts, each.checkpoint_rollout_id) for each in run.sessions()],
        "rollouts": [
            (each.kind, each.rollout_id, each.attempt, each.n_bytes, each.pruned_at is None)
            for each in run.rollouts(attempts=True)
        ],
        "pins": [(each.kind, each.rollout_id, each.note) for each in run.pins()],
        "versions": [(each.session, each.label, each.ordinal, each.params) for each in run.weight_versions()],
        "checkpoint": point.checkpoint_rollout_id,
        "journal": point.journalled_groups,
        "adopted": value(store._handle.config.url, f"{adopted} WHERE r.name = '{name}'"),
    }


def _comparable(result: Any) -> Any:
    if isinstance(result, pd.DataFrame):
        return result.to_json(orient="split", date_format="iso")
    return [_comparable(each) for each in result] if isinstance(result, list) else result


def _some(n_steps: int, most: int) -> range:
    """Every step, or about as many as wanted: with an odd distance, which meets before and after."""
    return range(0, n_steps, 1 if n_steps <= most else (n_steps // most) | 1)


most_steps = pytest.mark.parametrize("most", [2, pytest.param(10_000, marks=pytest.mark.slow)])


@pytest.mark.parametrize("name", READS)
@most_steps
def test_a_connection_that_ends_at_any_statement_of_a_read_changes_nothing_of_the_answer(
    postgres_url: str, name: str, most: int
) -> None:
    _fill(postgres_url, "faults", pin=True)
    with SampleStore.open(postgres_url, read_only=True) as store:
        run, steps = store.run("faults", create=False), Steps(None)
        with _stepping(store, steps):
            expected = _comparable(READS[name](store, run))
        assert len(steps.names) >= 4
        for step in _some(len(steps.names), most):
            with _stepping(store, Steps(step, lambda: end_connections(postgres_url))):
                found = _comparable(READS[name](store, run))
            if name == "runs":
                found[0], expected[0] = found[0].name, getattr(expected[0], "name", expected[0])
                found[2], expected[2] = found[2].name, getattr(expected[2], "name", expected[2])
            assert_same(found, expected, path=f"{name}, {steps.names[step]}")


@pytest.mark.parametrize("name", WRITES)
@most_steps
def test_a_connection_that_ends_at_any_statement_of_a_write_leaves_it_done_once(
    postgres_url: str, name: str, most: int
) -> None:
    _fill(postgres_url, "undisturbed", pin=True)
    steps = Steps(None)
    with SampleStore.open(postgres_url) as store:
        run = store.run("undisturbed")
        with _stepping(store, steps):
            expected = WRITES[name](store, run)
        state = _state(store, "undisturbed")
    assert len(steps.names) >= 6
    for step in _some(len(steps.names), most):
        run_name = f"step {step}"
        _fill(postgres_url, run_name, pin=True)
        with SampleStore.open(postgres_url) as store:
            run = store.run(run_name)
            with _stepping(store, Steps(step, lambda: end_connections(postgres_url))):
                assert WRITES[name](store, run) == expected, steps.names[step]
            assert_same(_state(store, run_name), state, path=f"{name}, {steps.names[step]}")
            store.delete_run(run_name) if name != "delete a run" else None
    with SampleStore.open(postgres_url) as store:
        assert store.verify().ok


@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_commit_was_not_answered_is_not_done_twice(postgres_url: str, name: str) -> None:
    _fill(postgres_url, "undisturbed", pin=True)
    with SampleStore.open(postgres_url) as store:
        run = store.run("undisturbed")
        with _losing_answers(store, None) as made:
            expected = WRITES[name](store, run)
        state = _state(store, "undisturbed")
        for number in range(len(made)):
            run_name = f"commit {number}"
            _fill(postgres_url, run_name, pin=True)
            run = store.run(run_name)
            with _losing_answers(store, number):
                assert WRITES[name](store, run) == expected, number
            assert_same(_state(store, run_name), state, path=f"{name}, {number}")


def _restart(server: PostgresServer) -> threading.Thread:
    """Stop a server, and start it again a little later in the thread that is returned."""
    server.stop()
    starting = threading.Timer(0.5, server.start)
    starting.start()
    return starting


def test_iter_samples_goes_on_from_where_it_was_through_a_restart_of_the_server(
    durable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.1, 0.3, 1.0, 2.0, 4.0, 8.0))  # the machine may be busy
    with durable_server.database() as url:
        _fill(url, "faults")
        with SampleStore.open(url) as store:
            run = store.run("faults")
            expected = list(run.iter_samples())
            seen, restarts = [], list[threading.Thread]()
            for sample in run.iter_samples(batch_size=3):
                seen.append(sample)
                if len(seen) in (1, 8):
                    for restart in restarts:
                        restart.join()
                    restarts.append(_restart(durable_server))
            assert_same(seen, expected)
            restarts[-1].join()
            last = _restart(durable_server)
            run.pin(1)
            run.recovery.record_checkpoint(2)
            assert run.delete_rollout(0) == 2
            last.join()
            assert [info.rollout_id for info in run.rollouts("train")] == [1, 2]


def test_a_pool_full_of_dead_connections_costs_one_try_at_most(
    durable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with durable_server.database() as url, SampleStore.open(url) as store:
        _fill(url, "faults")
        run = store.run("faults")
        expected = run.load_train(1)

        def fill_the_pool() -> None:
            barrier = threading.Barrier(5)

            def hold() -> None:
                with store._handle.reading():
                    barrier.wait(20)

            threads = [threading.Thread(target=hold) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", ())
        for restart in (lambda: end_connections(url), lambda: (durable_server.stop(), durable_server.start())):
            fill_the_pool()
            restart()
            assert_same(run.load_train(1), expected)
            fill_the_pool()
            restart()
            run.pin(1)
        monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.01,))
        fill_the_pool()
        with _stepping(store, Steps(4, lambda: end_connections(url))):  # the others end with the one in use
            assert_same(run.load_train(1), expected)
        fill_the_pool()
        with _losing_answers(store, 0):
            end_connections(url)
            run.pin(2)


def test_a_read_gives_up_after_a_bounded_time_and_only_the_outermost_work_is_tried_again(
    durable_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    with durable_server.database() as url, SampleStore.open(url) as store:
        _fill(url, "faults")
        run = store.run("faults")
        durable_server.stop()
        for work in (lambda: run.load_train(1), lambda: run.recovery.record_checkpoint(1), lambda: store.run("other")):
            caplog.clear()
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError):
                work()
            assert time.monotonic() - started < 5
            assert caplog.text.count("tried again") == 2 and "p@ss" not in caplog.text
        durable_server.start()
