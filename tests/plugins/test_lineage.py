"""Recorded rollouts are handed only to a session that would have generated the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from slime_store import SampleStore
from slime_store.plugins.state import dataset_fingerprint
from slime_store.repositories.resume import ResumeRepository
from slime_store.types import Sample
from tests.plugins.modes import assert_nothing_is_lost
from tests.plugins.processes import log_of, run_to_the_end, run_until_crash

ROOT = Path(__file__).parents[2]

CRASH = {"token": 249}
"""Inside rollout 5, with a group finished; the last checkpoint is that of rollout 2."""


def _attempts(directory: Path) -> list[tuple[int, int]]:
    with SampleStore.open(directory / "store.db", read_only=True) as store:
        run = store.run("run", create=False)
        return [(info.rollout_id, info.attempt) for info in run.rollouts("train", attempts=True)]


def _journalled(directory: Path) -> int:
    with SampleStore.open(directory / "store.db") as store, store._handle.reading() as connection:
        return len(ResumeRepository(connection, store.run("run")._pk).journal())


CHANGES: dict[str, dict[str, Any]] = {
    "lr": {"lr": 2.0},
    "dataset": {"n_prompts": 12},
    "data_source_path": {"slime_store_data_source_path": "tests.plugins.fake_framework.data_source.PlainSource"},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_run_is_handed_nothing_and_says_why(what: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"settle": True}
    assert run_until_crash(tmp_path, CRASH, **options)
    ledger = run_to_the_end(tmp_path, **options, **CHANGES[what])
    log = log_of(tmp_path)
    assert f"generating from rollout 3 on: rollout 3 was generated with another {what}" in log
    assert "served from the store" not in log
    assert "groups were finished" not in log
    assert all(metrics.get("store/served_groups", 0) == 0 for metrics in ledger.metrics[3:])
    assert [number for number, attempt in _attempts(tmp_path) if attempt == 2] == [3, 4]
    with SampleStore.open(tmp_path / "store.db") as store:
        assert store.run("run").resume().journalled_groups == []


@pytest.mark.parametrize("what", ["lr", "dataset"])
def test_a_changed_run_is_not_served_the_groups_of_a_first_rollout_after_the_checkpoint(
    what: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"settle": True}
    assert run_until_crash(tmp_path, {"token": 165}, **options)  # at the end of rollout 3
    with SampleStore.open(tmp_path / "store.db") as store:
        point = store.run("run").resume()
        assert (point.next_rollout_id, point.refused) == (3, None)
        assert point.journalled_groups
    ledger = run_to_the_end(tmp_path, **options, **CHANGES[what])
    assert "not generated again" not in log_of(tmp_path)
    assert all(metrics.get("store/served_groups", 0) == 0 for metrics in ledger.metrics)
    with SampleStore.open(tmp_path / "store.db") as store:
        assert store.run("run").resume().journalled_groups == []


def test_a_change_that_is_to_be_ignored_refuses_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settle": True, "slime_store_lineage_ignore": ["lr"]}
    run_until_crash(tmp_path, CRASH, **options)
    ledger = run_to_the_end(tmp_path, **options, lr=2.0)
    assert "rollouts 3 to 4 are recorded" in log_of(tmp_path)
    assert_nothing_is_lost(ledger, options)


def test_a_detour_by_mistake_costs_nothing_of_what_was_recorded_before(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settle": True}
    control = run_to_the_end(tmp_path / "control")
    run_until_crash(tmp_path, CRASH, **options)
    assert run_until_crash(tmp_path, {"token": 3}, **options, lr=2.0)  # stopped before it recorded anything
    ledger = run_to_the_end(tmp_path, **options)
    assert ledger.history == control.history
    assert "rollouts 3 to 4 are recorded" in log_of(tmp_path)
    assert ledger.n_generated + CRASH["token"] <= control.n_generated + 64


def test_rollouts_of_an_abandoned_way_are_not_mixed_with_those_of_the_new_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settle": True}
    run_until_crash(tmp_path, CRASH, **options)
    assert _journalled(tmp_path)
    assert run_until_crash(tmp_path, {"point": "after rollout", "rollout": 3}, **options, lr=2.0)
    assert not _journalled(tmp_path)
    ledger = run_to_the_end(tmp_path, **options, lr=2.0)
    log = log_of(tmp_path)
    assert "rollouts 3 to 3 are recorded and are not generated again" in log
    assert "generating from rollout 4 on: rollout 4 is from session 1, before rollout 3 was made anew" in log
    assert_nothing_is_lost(ledger, options)


@pytest.mark.parametrize("bound", [0, 1])
def test_no_more_rollouts_than_allowed_are_adopted(bound: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"settle": True, "slime_store_max_adopted": bound}
    control = run_to_the_end(tmp_path / "control")
    run_until_crash(tmp_path, CRASH, **options)
    ledger = run_to_the_end(tmp_path, **options)
    assert ledger.history == control.history
    assert f"rollout {3 + bound} is more than {bound} rollouts after checkpoint 2" in log_of(tmp_path)
    assert sum(metrics.get("store/adopted", 0) for metrics in ledger.metrics) == bound
    assert [number for number, attempt in _attempts(tmp_path) if attempt == 2] == list(range(3 + bound, 5))


class _Tool:
    """Has the repr that Python gives: with its address."""


def _source(image_value: int) -> Any:
    image = Image.new("RGB", (2, 2), (image_value, 0, 0))
    prompt = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "what?"}]}]
    words = ["a", "b", "c", "d"]
    samples = [Sample(prompt=prompt, label={"any of": set(words), "tool": _Tool()})]
    return SimpleNamespace(dataset=SimpleNamespace(origin_samples=samples))


def test_the_fingerprint_of_a_dataset_does_not_depend_on_where_its_objects_lie() -> None:
    first, second = _source(1), _source(1)
    assert dataset_fingerprint(first) == dataset_fingerprint(second)
    assert dataset_fingerprint(first) != dataset_fingerprint(_source(2))


def test_what_identifies_a_run_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = (
        "from argparse import Namespace; from tests.plugins.test_lineage import _source, _Tool\n"
        "from slime_store.plugins.lineage import lineage_of\n"
        "print(lineage_of(Namespace(rollout_stop={'x', 'y', 'z'}, custom_rm_path=_Tool()), _source(1)))"
    )
    said = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        said.add(subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert len(said) == 1


def test_an_argument_that_is_not_a_number_is_equal_to_itself(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settle": True, "gamma": float("nan")}
    run_until_crash(tmp_path, CRASH, **options)
    run_to_the_end(tmp_path, **options)
    assert "rollouts 3 to 4 are recorded" in log_of(tmp_path)
