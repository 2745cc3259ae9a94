"""What is overtaken by a writer while it is read is read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import torch

from slime_store import RolloutFnTrainOutput, Run, Sample, SampleFilter, SampleStore
from slime_store.dataframes import samples_df
from slime_store.repositories.blobs import BlobRepository
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
from slime_store.testing import assert_same


@pytest.mark.parametrize("table", ["samples", "sample_texts", "sample_documents", "sample_arrays"])
def test_a_load_is_no_mixture_of_what_was_and_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    def version(number: int) -> list[list[Sample]]:
        texts = [f"{number}-{i}-" * 2000 for i in range(20)]
        return [[Sample(index=i, response=text, metadata={"text": text}) for i, text in enumerate(texts)]]

    path = tmp_path / "store.db"
    with SampleStore.open(path) as store:
        store.run("run").record_train(0, version(0))
    may = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: Path(name) != tmp_path and may(name, mode))
    reader = SampleStore.open(path, read_only=True)
    run = reader.run("run", create=False)
    assert run.rollouts()
    written = []

    def overtake(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if f"FROM {table} " in statement.replace("\n", " ") and not written:
            written.append(1)
            with SampleStore.open(path) as store:
                store.run("run").record_train(0, version(1), on_conflict="replace")

    sa.event.listen(reader._handle.engine, "before_cursor_execute", overtake)
    assert_same(run.load_train(0, sample_type=Sample).samples, version(1))
    assert written
    reader.close()


def pixels(seed: int) -> torch.Tensor:
    """Return what is large enough for a side file."""
    return torch.randn(600_000, generator=torch.Generator().manual_seed(seed))


def replaced(run: Run) -> None:
    run.record_train(0, [[Sample(metadata={"t": pixels(1)})]], state={"t": pixels(2)}, on_conflict="replace")


def recorded(run: Run) -> None:
    output = RolloutFnTrainOutput([[Sample(group_index=0)]])
    prepare_train(0, output, clear_journal=JournalClearing(whole=True)).store(run)


@pytest.mark.parametrize(
    ("happens", "read"),
    [
        (replaced, lambda run: run.recovery.load_state(0)["t"].shape),
        (replaced, lambda run: run.load_train(0).samples[0][0].metadata["t"].shape),
        (replaced, lambda run: len(samples_df(run, SampleFilter(metadata={"t": 1})))),
        (recorded, lambda run: run.resume().next_rollout_id),
    ],
)
def test_what_goes_under_a_reader_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Any, read: Any
) -> None:
    """A side file goes with its rollout, also beneath a transaction that still sees its row."""
    contents, seen = BlobRepository.contents, []
    with SampleStore.open(tmp_path / "store.db") as store, SampleStore.open(tmp_path / "store.db") as other:
        run = store.run("run")
        if happens is replaced:
            run.record_train(0, [[Sample(metadata={"t": pixels(0)})]], state={"t": pixels(1)})
        else:
            journal = run.recovery.journal()
            journal.put(0, [Sample(group_index=0, metadata={"t": pixels(0)})])
            journal.close()

        def overtaken(self: BlobRepository, digests: Any) -> Any:
            if digests and not seen:
                seen.append(digests)
                happens(other.run("run"))
            return contents(self, digests)

        monkeypatch.setattr(BlobRepository, "contents", overtaken)
        read(run)
        assert seen
