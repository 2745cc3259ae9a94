"""A file that is read without locks is read again when somebody begins to write to it meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from slime_store import Sample, SampleStore
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
