"""Record one rollout, then ask as another process would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd

from slime_store import Run, Sample
from slime_store.testing.contract.opening import opened, run_of

Ask = Callable[..., Any]


@contextmanager
def reading(url: str) -> Iterator[Run]:
    """Give the run of a store that was just opened for reading."""
    with opened(url, read_only=True) as store:
        yield store.run("contract", create=False)


def record(url: str, *samples: Sample, rollout_id: int = 0) -> None:
    """Record samples as the one group of a train rollout."""
    with run_of(url) as run:
        run.record_train(rollout_id, [list(samples)])


def ask(url: str, question: Ask, *args: Any, **options: Any) -> Any:
    """Return what a question about the run gives."""
    with reading(url) as run:
        return question(run, *args, **options)


def plain(values: Any) -> list[Any]:
    """Return a column as a list in which whatever stands for no value is None."""
    return [None if pd.isna(value) else value for value in values]
