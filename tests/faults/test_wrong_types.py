"""Values of other types than their columns have, which SQLite keeps: each reader names them or does without."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slime_store import SampleStore, copy_store
from slime_store.cli.root import cli
from slime_store.dataframes import eval_df, eval_summary_df, prompts_df, rollouts_df, samples_df, weight_versions_df
from slime_store.errors import DamagedStoreError, StoreError
from slime_store.interchange import export_run
from slime_store.models import Base
from slime_store.store import diagnosis
from slime_store.store.located import count_samples, load_sample
from slime_store.testing import make_train_output
from tests.services.filling import RUN, make_filled
from tests.services.tables import execute

VALUES: dict[str, Any] = {"text": "x", "bytes": b"\xff\x00", "none": None}

COLUMNS = [(table.name, column.name) for table in Base.metadata.sorted_tables for column in table.columns]


def readers(store: SampleStore, tmp_path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    run = store.run(RUN, create=False)
    yield "runs", store.runs
    yield "stats", store.stats
    yield "sessions", run.sessions
    yield "rollouts", lambda: run.rollouts(attempts=True)
    yield "rollout", lambda: run.rollout(0)
    yield "weight_versions", run.weight_versions
    yield "load_train", lambda: run.load_train(0)
    yield "load_batch", lambda: run.load_batch(0)
    yield "load_eval", lambda: run.load_eval(0)
    yield "iter_samples", lambda: list(run.iter_samples())
    yield "load_sample", lambda: load_sample(run, 0, 0)
    yield "count_samples", lambda: count_samples(store)
    yield "resume", run.resume
    yield "load_state", lambda: run.recovery.load_state(0, attempt=1)
    yield "pins", run.pins
    yield "prune", lambda: run.prune(keep_arrays_last=1, dry_run=True)
    for frame in (samples_df, eval_df, prompts_df, rollouts_df, weight_versions_df, eval_summary_df):
        yield frame.__name__, lambda frame=frame: frame(store)  # type: ignore[misc]
    yield "export_run", lambda: export_run(run, tmp_path / "x{rollout_id}.pt")
    yield "copy_store", lambda: copy_store(store, tmp_path / "copy.db")
    yield "backup", lambda: store.backup(tmp_path / "backup.db")


WRITERS: dict[str, Callable[[SampleStore], Any]] = {
    "prune": lambda store: store.run(RUN).prune(keep_arrays_last=0),
    "delete_rollout": lambda store: store.run(RUN).delete_rollout(0),
    "delete_run": lambda store: store.delete_run(RUN),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled")
    make_filled(f"sqlite:///{directory}/store.db")
    return directory


def damaged(filled: Path, tmp_path: Path, table: str, column: str, value: Any) -> Path | None:
    """Return a store with a value in every row of a column; None where SQLite itself refuses it."""
    path = tmp_path / "store.db"
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection:
                connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
        except sqlite3.IntegrityError:  # NOT NULL, a key that is unique, an integer key
            return None
    return path


def errors_of(filled: Path, tmp_path: Path, table: str, column: str, value: Any) -> dict[str, StoreError]:
    """Return what each operation raised that failed, having checked that it is one of our errors."""
    path = damaged(filled, tmp_path, table, column, value)
    if path is None:
        return {}
    found: dict[str, StoreError] = {}
    with SampleStore.open(path, read_only=True) as store:
        try:
            operations = list(readers(store, tmp_path))
        except StoreError as error:
            operations, found["run"] = [], error
        for name, read in operations:
            try:
                read()
            except StoreError as error:
                found[name] = error
        report = store.verify()
    assert not found or not report.ok, f"verify does not see why {sorted(found)} fail"
    for name, write in WRITERS.items():
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        (tmp_path / name).mkdir()
        copy = damaged(filled, tmp_path / name, table, column, value)
        assert copy is not None
        try:
            with SampleStore.open(copy) as store:
                write(store)
        except StoreError as error:
            found[name] = error
    for command in (["run", "show", RUN], ["sample", "list", RUN], ["rollout", "list", RUN], ["db", "status"]):
        result = CliRunner().invoke(cli, ["--store", str(path), *command])
        assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
    return found


@pytest.mark.parametrize(
    ("table", "column", "value", "concerned"),
    [
        ("rollouts", "n_samples", "text", "samples_df"),
        ("checkpoints", "rollout_id", "text", "resume"),
        ("blobs", "n_bytes", "bytes", "load_state"),
        ("adoptions", "adopted_at", "bytes", "copy_store"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("eval_datasets", "name", "bytes", "eval_df"),
                ("rollout_weight_versions", "n_samples", "text", "weight_versions_df"),
            )
        ),
    ],
)
def test_what_a_value_of_another_type_makes_a_reader_run_into_is_damage(
    filled: Path, tmp_path: Path, table: str, column: str, value: str, concerned: str
) -> None:
    found = errors_of(filled, tmp_path, table, column, VALUES[value])
    assert isinstance(found[concerned], DamagedStoreError)
    assert f"values of {table}.{column} are no" in str(found[concerned])


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_no_column_makes_any_reader_raise_an_error_that_is_not_ours(
    filled: Path, tmp_path: Path, table: str, column: str, value: str
) -> None:
    errors_of(filled, tmp_path, table, column, VALUES[value])


@pytest.mark.parametrize("hour", ["2026-01-01 25:00:00.000000", "2026-02-30 10:00:00", "0000-01-01 00:00:00", "2026"])
def test_a_text_that_is_no_time_is_damage(filled: Path, tmp_path: Path, hour: str) -> None:
    path = damaged(filled, tmp_path, "sessions", "started_at", hour)
    assert path is not None
    with SampleStore.open(path, read_only=True) as store:
        with pytest.raises(DamagedStoreError):
            store.run(RUN, create=False).sessions()
        assert "values of sessions.started_at are no times" in str(store.verify().problems)


def test_an_error_of_the_callers_own_is_not_called_damage_and_costs_no_look_at_the_store(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = damaged(filled, tmp_path, "sessions", "started_at", "x")
    assert path is not None
    monkeypatch.setattr(diagnosis, "wrong_values", lambda _connection: pytest.fail("it was looked for damage"))
    with SampleStore.open(path, read_only=True) as store:
        run = store.run(RUN, create=False)
        with pytest.raises(ValueError, match="no column"):
            samples_df(store, columns=["nonsense"])
        with pytest.raises(ValueError, match="kind is 'train' or 'eval'"):
            run.rollouts("nonsense")  # type: ignore[arg-type]


@pytest.mark.postgresql
def test_a_time_that_python_cannot_hold_hides_no_other_damage(postgres_url: str) -> None:
    with SampleStore.open(postgres_url) as store:
        for name in ("one", "two"):
            store.run(name).record_train(0, make_train_output(1, 1))
        execute(
            postgres_url,
            "UPDATE rollouts SET started_at = 'infinity' WHERE run_pk = 1",
            "UPDATE sample_texts SET response = 'other' WHERE rollout_pk = 2",
        )
        with pytest.raises(DamagedStoreError, match="timestamp too large"):
            store.run("one").rollouts()
        problems = store.verify().problems
        assert {"one", "two"} <= {problem.run for problem in problems}
        with pytest.raises(StoreError) as caught:
            store.delete_run("a\0")  # a value that cannot be sent says nothing of what is stored
        assert not isinstance(caught.value, DamagedStoreError)
