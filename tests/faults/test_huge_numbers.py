"""Numbers in rows that claim more than the store holds: named as damage, and nothing is made of them."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, Sample, SampleStore
from slime_store.dataframes import eval_summary_df
from slime_store.errors import BlobCorruptError, StoreError
from slime_store.interchange import export_samples
from slime_store.mapping.fields import MAX_TURNS
from slime_store.store.located import load_sample
from slime_store.testing import assert_same, make_eval_output
from slime_store.testing.contract.opening import opened
from tests.faults.given import RUN, exit_code_of
from tests.services.tables import execute, row

_ROOM_BYTES = 200_000_000
_SECONDS = 20

NUMBERS = {
    "the last sample of an array": "UPDATE sample_arrays SET last_position = {n} WHERE rollout_pk = {train}",
    "the first sample of an array": "UPDATE sample_arrays SET first_position = -{n} WHERE rollout_pk = {train}",
    "turns": "UPDATE sample_weight_versions SET n_turns = {n} WHERE rollout_pk = {train}",
    "samples": "UPDATE rollouts SET n_samples = {n} WHERE id = {train}",
    "samples, nested": "UPDATE rollouts SET n_samples = {n}, nesting = '[{n}]' WHERE id = {train}",
    "no samples, many less than none": "UPDATE rollouts SET n_samples = 0, nesting = '[-{n},{n}]' WHERE id = {train}",
    "samples of a dataset": "UPDATE eval_datasets SET n_samples = {n} WHERE position = 0",
    "samples of a dataset, nested": "UPDATE eval_datasets SET n_samples = {n}, nesting = '[{n}]' WHERE position = 1",
    "the number of a dataset": "UPDATE samples SET dataset_position = {n} WHERE rollout_pk = {eval} AND position = 0",
}

READS: dict[str, Callable[[Run, Path], Any]] = {
    "load_train": lambda run, _: run.load_train(0),
    "load_batch": lambda run, _: run.load_batch(0),
    "load_eval": lambda run, _: run.load_eval(0),
    "load_sample": lambda run, _: load_sample(run, 0, 1),
    "iter_samples": lambda run, _: list(run.iter_samples()),
    "export": lambda run, path: export_samples(run, path / "x.jsonl", format="jsonl"),
    "eval_summary_df": lambda run, _: eval_summary_df(run),
}


@pytest.fixture
def recorded(store_url: str) -> str:
    with opened(store_url) as store:
        run = store.run(RUN)
        for number in range(2):
            samples = [Sample(tokens=[1, 2], reward=1.0, weight_versions=["7", "7"]) for _ in range(3)]
            run.record_train(number, [samples[:2], samples[2:]])
        run.record_eval(0, make_eval_output({"aime": 1, "gsm8k": 1}))
    return store_url


def in_little_memory(look: Callable[[SampleStore], None], url: str) -> None:
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + _ROOM_BYTES, taken + _ROOM_BYTES))
    signal.alarm(_SECONDS)
    with opened(url, read_only=True) as store:
        look(store)


@pytest.mark.parametrize(
    "number",
    ["turns", *(pytest.param(each, marks=pytest.mark.slow_on_postgresql) for each in NUMBERS if each != "turns")],
)
def test_a_huge_number_is_named_and_nothing_is_made_of_it(recorded: str, tmp_path: Path, number: str) -> None:
    train, evaluation = row(recorded, "SELECT min(id), max(id) FROM rollouts")
    execute(recorded, NUMBERS[number].format(n=1 << 40, train=train, eval=evaluation))
    execute(recorded, "UPDATE samples SET reward = 2 WHERE rollout_pk = (SELECT id FROM rollouts WHERE rollout_id = 1)")

    def look(store: SampleStore) -> None:
        found = store.verify().problems
        kind = "eval" if "dataset" in number else "train"
        assert {(kind, 0), ("train", 1)} <= {(problem.kind, problem.rollout_id) for problem in found}, found
        run, errors = store.run(RUN, create=False), {}
        for name, read in READS.items():
            try:
                read(run, tmp_path)
            except StoreError as error:
                errors[name] = error
        concerned = {"turns": "iter_samples", "samples of a dataset": "export"}.get(number)
        assert concerned is None or isinstance(errors[concerned], BlobCorruptError), errors
        assert concerned is None or f"{kind} rollout 0" in str(errors[concerned]), errors

    assert exit_code_of(in_little_memory, look, recorded) == 0


def test_more_weight_versions_than_numbers_may_claim_come_back(store_url: str) -> None:
    sample = Sample(weight_versions=["7"] * (MAX_TURNS + 1) + ["8"])
    with opened(store_url) as store:
        run = store.run(RUN)
        run.record_train(0, [[sample]])
        assert_same(run.load_train(0, sample_type=Sample).samples, [[sample]])
        assert [version.label for version in run.weight_versions()] == ["7", "8"]
        assert store.verify().ok
    execute(store_url, "DELETE FROM sample_documents")
    with opened(store_url, read_only=True) as store:
        with pytest.raises(BlobCorruptError, match="131073, 1 turns"):
            store.run(RUN, create=False).load_train(0)
        assert "versions_disagree" in str(store.verify())
