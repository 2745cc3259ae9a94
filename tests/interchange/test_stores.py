"""Spool files, and other stores, come in whole and once."""

from __future__ import annotations

from pathlib import Path

from slime_store import Sample, SampleStore
from slime_store.interchange import import_path
from slime_store.testing import assert_same
from slime_store.testing.factories import make_eval_output, make_train_output


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
