"""Work in other processes. Light to import: each spawned child imports this module anew."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from slime_store import Run, SampleStore
from slime_store.testing import assert_same, make_train_output

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""How long a test waits for a child that should have ended; only a hanging child takes so long."""

N_EACH = 5
"""Rollouts that one of several writers records."""


def in_a_new_process(work: Callable[..., T], *args: Any) -> T:
    """Return what a function of a test module gives in a fresh interpreter, or raise what it raises."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result(PATIENCE_SECONDS)


def join_all(processes: list[Any]) -> list[int]:
    """Wait for processes to end and return their exit codes; one that hangs is killed."""
    for process in processes:
        process.join(PATIENCE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


# -- what the children do


def output_of(rollout_id: int) -> Any:
    """Return the small rollout that every process knows under this id."""
    return make_train_output(2, 2, seed=rollout_id, first_group_index=2 * rollout_id)


def ids_of(writer: int, n_each: int = N_EACH) -> range:
    """Return the ids of one of several writers."""
    return range(writer * n_each, (writer + 1) * n_each)


def record_all(run: Run, rollout_ids: range) -> None:
    """Record rollouts, every other one in the background, and see that they come back."""
    for rollout_id in rollout_ids:
        run.record_train(rollout_id, output_of(rollout_id), background=rollout_id % 2 == 1)
    run.flush()
    for rollout_id in rollout_ids:
        assert_same(run.load_train(rollout_id), output_of(rollout_id))


def names_of_runs(store: SampleStore) -> list[str]:
    """Return what the store says of its runs."""
    return [info.name for info in store.runs()]


def pixels_of(url: str) -> list[bytes]:
    """Return the pixels of every image in the group of rollout 0."""
    with SampleStore.open(url, read_only=True) as store:
        [group] = store.run("contract", create=False).load_train(0).samples
    return [image.tobytes() for sample in group for image in sample.multimodal_inputs["images"]]
