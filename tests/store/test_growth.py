"""What must not grow: statements with samples and blobs, waiting with other writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import event
from sqlalchemy.engine import Engine

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter, SampleStore
from slime_store.errors import UnsupportedValueError
from slime_store.mapping import encode, limits
from slime_store.testing import assert_same


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect every SQL statement that SQLAlchemy sends."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def with_tensors(n: int) -> RolloutFnTrainOutput:
    return RolloutFnTrainOutput(
        [[Sample(index=i, prompt=f"p{i}", metadata={"t": torch.full((600,), float(i))})] for i in range(n)]
    )


def test_distinct_blobs_and_prompts_cost_no_statement_each(store_url: str) -> None:
    counts = {}
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.record_train(0, [])  # begins the session
        for n in (8, 200):
            with statements() as written:
                run.record_train(n, with_tensors(n))
            with statements() as read:
                loaded = run.load_train(n, sample_type=Sample)
            counts[n] = (len(written), len(read))
            assert_same(loaded, with_tensors(n))
    assert counts[200] == counts[8]


def test_looking_for_one_prompt_reads_only_the_rollouts_that_have_it(store_url: str) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        for i in range(30):
            run.record_train(i, [[Sample(prompt=f"q{i}", weight_versions=[str(i)])]])
        for where in (SampleFilter(prompt="q7"), SampleFilter(weight_version="7"), SampleFilter(dataset="none")):
            with statements() as seen:
                found = [s.prompt for s in run.iter_samples(where, sample_type=Sample)]
            assert found == ([] if where.dataset else ["q7"])
            assert len(seen) < 20


def test_a_rollout_is_never_mistaken_for_a_deleted_one(store_url: str) -> None:
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.record_train(1, [[Sample(response="old") for _ in range(3)]])
        samples = run.iter_samples(batch_size=1, sample_type=Sample)
        assert next(samples).response == "old"
        run.delete_rollout(1)
        run.record_train(2, [[Sample(response="new") for _ in range(3)]])
        assert [s.response for s in samples] == []


def test_finding_a_run_waits_for_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SampleStore.open(path) as writer, SampleStore.open(path, busy_timeout=0.1) as reader:
        writer.run("r")
        with writer._handle.writing("hold the lock"):
            assert reader.run("r").rollouts() == []


def test_a_run_keeps_the_config_of_its_first_start(store_url: str) -> None:
    with SampleStore.open(store_url) as store:
        store.run("r", config={"lr": 1})
        store.run("r", config={"lr": 2}).record_train(1, [[Sample()]])
        assert store.runs()[0].config == {"lr": 1}


def test_every_handle_of_a_process_writes_to_one_session(store_url: str) -> None:
    import pickle

    with SampleStore.open(store_url) as store:
        run = store.run("r")
        copies = [pickle.loads(pickle.dumps(run)) for _ in range(2)]
        sessions = {
            each.record_train(i, [[Sample(weight_versions=["7"])]]).session for i, each in enumerate([run, *copies])
        }
        assert sessions == {1}
        assert [version.label for version in run.weight_versions()] == ["7"]


@pytest.mark.parametrize("value", ['{"$a', '$a"b', '"$x":', "$", '\\"$'])
def test_no_key_is_mistaken_for_a_tag(store_url: str, value: str) -> None:
    output = RolloutFnTrainOutput([[Sample(metadata={value: 1}, prompt=[{value: "x"}])]], metrics={value: 2})
    with SampleStore.open(store_url) as store:
        run = store.run("r", config={value: 3})
        run.record_train(1, output)
        assert_same(run.load_train(1, sample_type=Sample), output)
        assert store.runs()[0].config == {value: 3}


def test_odd_values_never_fail_for_the_sake_of_a_query_copy(store_url: str) -> None:
    class Odd:
        def __bool__(self) -> bool:
            raise OSError("no truth")

        def __len__(self) -> int:
            raise OSError("no length")

        def __repr__(self) -> str:
            raise OSError("no text")

    odd = Sample(group_index=[1], index={}, reward=torch.ones(1, device="meta"), remove_sample=Odd())  # type: ignore[arg-type]
    odd.tokens, odd.weight_versions, odd.status = Odd(), [Odd()], Odd()  # type: ignore[assignment,list-item]
    with SampleStore.open(store_url) as store:
        info = store.run("r").record_train(1, [[odd, Sample()], odd], strict=False)
        assert info.n_samples == 3 and len(info.placeholders) >= 4


def test_sets_of_attributes_beyond_what_is_counted_are_refused(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.MAX_LAYOUTS == 2**15 - 1
    monkeypatch.setattr(encode, "MAX_LAYOUTS", 20)
    samples = [Sample(index=n) for n in range(21)]
    for n, sample in enumerate(samples):
        sample.__dict__[f"attribute {n}"] = n
    with SampleStore.open(store_url) as store:
        run = store.run("r")
        run.record_train(0, [samples[:20]])
        assert_same(run.load_train(0).samples, [samples[:20]])
        with pytest.raises(UnsupportedValueError, match="more than 20 different sets of attributes"):
            run.record_train(1, [samples])
        assert [info.rollout_id for info in run.rollouts()] == [0]
