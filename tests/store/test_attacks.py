"""What an attacker got through with once: each stays refused, exact or typed."""

from __future__ import annotations

import io
import os
import sqlite3
import threading
import time
import zoneinfo
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store import Run, Sample, SampleFilter, SampleStore
from slime_store.errors import (
    BlobCorruptError,
    DamagedStoreError,
    DatabaseError,
    InvalidOutputError,
    StoreError,
    UnsupportedValueError,
)
from slime_store.testing import assert_same


def recorded(run: Run, sample: Sample, **options: Any) -> Sample:
    run.record_train(1, [[sample]], on_conflict="replace", **options)
    return run.load_train(1, sample_type=Sample).samples[0][0]


def test_an_array_that_changes_while_it_is_recorded_is_never_kept_under_another_ones_digest(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SampleStore.open(path) as store:
        run = store.run("r")
        lock = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        lock.execute("BEGIN IMMEDIATE")
        array, errors = np.arange(100_000), []

        def record() -> None:
            try:
                run.record_train(1, [[Sample(metadata={"a": array})]])
            except UnsupportedValueError as error:
                errors.append(error)

        thread = threading.Thread(target=record)
        thread.start()
        time.sleep(0.5)
        array[:] = 7
        lock.execute("COMMIT")
        thread.join()
        lock.close()
        run.record_train(2, [[Sample(metadata={"a": np.arange(100_000)})]])
        assert_same(run.load_train(2, sample_type=Sample).samples[0][0].metadata["a"], np.arange(100_000))
        assert errors or run.load_train(1, sample_type=Sample)


def test_the_log_of_a_deleted_store_is_not_replayed_into_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    SampleStore.open(path).close()
    Path(f"{path}-wal").write_bytes(b"left over")
    path.unlink()
    with pytest.raises(DamagedStoreError, match="its log"):
        SampleStore.open(path)
    assert not path.exists()


def test_a_store_behind_a_link_has_one_side_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real" / "runs.db")
    SampleStore.open(tmp_path / "real" / "runs.db").close()
    sample = Sample(metadata={"a": np.random.default_rng(0).bytes(2_000_000)})
    with SampleStore.open(link) as store:
        store.run("r").record_train(1, [[sample]])
    with SampleStore.open(tmp_path / "real" / "runs.db") as store:
        assert_same(store.run("r").load_train(1, sample_type=Sample).samples[0][0], sample)


def test_a_file_that_was_moved_or_replaced_takes_no_more_rollouts(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SampleStore.open(path) as store:
        run = store.run("r")
        run.record_train(1, [[Sample()]])
        os.rename(path, tmp_path / "moved.db")
        for act in (lambda: run.record_train(2, [[Sample()]]), lambda: run.rollouts()):
            with pytest.raises(DatabaseError, match="moved, deleted or replaced"):
                act()


def test_a_callback_may_record_in_the_background(tmp_path: Path) -> None:
    with SampleStore.open(tmp_path / "runs.db") as store:
        run = store.run("r")
        futures = []
        for i in range(12):
            future = run.record_train(i, [[Sample()]], background=True)
            future.add_done_callback(lambda _, i=i: futures.append(run.record_eval(i, {}, background=True)))  # type: ignore[misc]
        deadline = time.monotonic() + 60
        while len(futures) < 12 and time.monotonic() < deadline:
            time.sleep(0.01)
        store.flush()
        assert len(run.rollouts("eval")) == 12


def test_a_large_flat_group_takes_no_quadratic_time() -> None:
    from slime_store.mapping.nesting import flatten

    samples = [Sample() for _ in range(20_000)]
    assert flatten([samples]).groups[0].n_trajectories == 20_000


def test_long_names_fit_every_index_and_come_back(store_url: str) -> None:
    name = os.urandom(6000).hex()
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        sample = Sample(reward={name: 1.0}, weight_versions=[name])
        assert_same(recorded(run, sample), sample)
        data = {name: {"samples": [sample]}}
        run.record_eval(1, data)
        assert_same(run.load_eval(1, sample_type=Sample).data, data)
        assert len(list(run.iter_samples(SampleFilter(dataset=name), sample_type=Sample))) == 1
        assert len(list(run.iter_samples(SampleFilter(kind="train", weight_version=name), sample_type=Sample))) == 1
        assert len(list(run.iter_samples(SampleFilter(kind="train", reward_min=1, reward_key=name)))) == 1


def test_a_side_file_that_was_lost_is_written_again_with_the_next_equal_content(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(2_000_000)
    with SampleStore.open(tmp_path / "runs.db") as store:
        run = store.run("r")
        run.record_train(1, [[Sample(metadata={"a": data})]])
        for file in (tmp_path / "runs.db-blobs").rglob("*.blob"):
            file.unlink()
        run.record_train(2, [[Sample(metadata={"a": data})]])
        for rollout_id in (2, 1):
            assert run.load_train(rollout_id, sample_type=Sample).samples[0][0].metadata["a"] == data


def made_up_zone() -> zoneinfo.ZoneInfo:
    """A zone that took its name from nowhere: version 1 of the format, without any transition."""
    header = b"TZif" + bytes(16) + (0).to_bytes(4, "big") * 4 + (1).to_bytes(4, "big") + (4).to_bytes(4, "big")
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(header + bytes(6) + b"ABC\0"), key="Made/Up")


class Mute:
    def __repr__(self) -> str:
        raise OSError("no text")


@pytest.mark.parametrize(
    "value",
    [
        {Mute(): 1},
        {10**5000: len},
        np.array(["a"], dtype=np.dtypes.StringDType()) if hasattr(np.dtypes, "StringDType") else len,
        made_up_zone(),
    ],
    ids=["mute key", "huge key", "string dtype", "made-up zone"],
)
def test_odd_values_are_refused_by_a_typed_error(tmp_path: Path, value: Any) -> None:
    with SampleStore.open(tmp_path / "runs.db") as store:
        with pytest.raises(UnsupportedValueError):
            recorded(store.run("r"), Sample(metadata={"x": value}))
        recorded(store.run("r"), Sample(metadata={"x": value}), strict=False)


def test_two_keys_that_look_alike_stay_two(tmp_path: Path) -> None:
    with SampleStore.open(tmp_path / "runs.db") as store:
        same_text = type("K", (), {"__repr__": lambda self: "K"})
        loaded = recorded(store.run("r"), Sample(metadata={same_text(): 1, same_text(): 2}), strict=False)
        assert list(loaded.metadata.values()) == [1, 2]


@pytest.mark.parametrize(
    "value",
    [np.str_("a\0"), np.array((False,), dtype=[("\0", "?")]), np.array((1,), dtype=[("\ud800", "i4")])],
    ids=["str_", "NUL in a field", "surrogate in a field"],
)
def test_odd_text_comes_back(store_url: str, value: Any) -> None:
    with SampleStore.open(store_url) as store:
        sample = Sample(metadata={"x": value})
        assert_same(recorded(store.run("r"), sample), sample)


def test_wrong_arguments_say_what_was_wrong(tmp_path: Path) -> None:
    with SampleStore.open(tmp_path / "runs.db") as store:
        run = store.run("r")
        run.record_train(1, [[Sample()]])
        for act in (
            lambda: run.record_train("1", [[Sample()]]),  # type: ignore[call-overload]
            lambda: run.record_train(10**5000, [[Sample()]]),
            lambda: run.record_train(1, None),
            lambda: run.record_train(1, [[Sample().to_dict()]]),
            lambda: run.record_weight_version("a", params=[1]),  # type: ignore[list-item]
            lambda: run.load_train(1, attempt=2**70),
        ):
            with pytest.raises(InvalidOutputError) as caught:
                act()
            assert "strict" not in str(caught.value)
        with pytest.raises(TypeError, match="SampleFilter"):
            run.iter_samples({"kind": "train"})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="collection of names"):
            run.iter_samples(fields="reward")
        with pytest.raises(ValueError, match="trian"):
            run.rollouts("trian")  # type: ignore[arg-type]
        assert run.load_train(1, attempt=np.int64(1), sample_type=Sample).samples == [[Sample()]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rollouts SET layouts = 'x'",
        "UPDATE rollouts SET layouts = '[]'",
        "UPDATE rollouts SET layouts = '[[1]]'",
        "UPDATE rollouts SET nesting = '{}'",
        "UPDATE samples SET layout = 7",
        "UPDATE samples SET reward = 9e999, reward_type = 'int'",
        "UPDATE sample_arrays SET data = NULL",
        """UPDATE sample_arrays SET layout = '{"of":"list","type":[],"tail":["a"],"n":[1.5]}'""",
        """UPDATE sample_documents SET metadata = '{"$ndarray":{"dtype":"|S0","shape":[10000000000],"data":""}}'""",
        """UPDATE sample_documents SET metadata = '{"$float":"ab"}'""",
        """UPDATE sample_documents SET metadata = '{"$torch.device":"zzz"}'""",
        "DELETE FROM prompts",
    ],
)
def test_rows_that_were_damaged_by_hand_are_a_typed_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "runs.db"
    with SampleStore.open(path) as store:
        run = store.run("r")
        run.record_train(1, [[Sample(prompt="p", tokens=[1, 2], metadata={"a": 1}, reward=1.0)]])
        with sqlite3.connect(path) as connection:
            connection.execute(damage)
        connection.close()
        with pytest.raises(StoreError) as caught:
            run.load_train(1, sample_type=Sample)
        assert isinstance(caught.value, BlobCorruptError)
