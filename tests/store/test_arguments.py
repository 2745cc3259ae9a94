"""A caller's own mistakes are told as such: before anything is read, and never as damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from slime_store import Run, Sample
from slime_store.errors import InvalidOutputError, UnsupportedValueError
from slime_store.interchange import export_pt
from slime_store.store.located import iter_located, load_sample
from slime_store.testing.contract.opening import run_of


class Stubborn(Sample):
    """A class of samples that cannot be made without arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("mine")


def recorded(run: Run) -> Run:
    run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"lr": 1, "betas": np.array([0.9, 0.99]), 3: 4})
    run.record_train(0, [[Sample(response="x", reward=1.0)]], state={"cursor": 1, "buffer": [Sample()]})
    return run


READS: dict[str, Callable[[Run], Any]] = {
    "load_train": lambda run: run.load_train(0, sample_type=Stubborn),
    "load_eval": lambda run: run.load_eval(0, sample_type=Stubborn),
    "iter_samples": lambda run: list(run.iter_samples(sample_type=Stubborn)),
    "iter_located": lambda run: list(iter_located(run, sample_type=Stubborn)),
    "load_sample": lambda run: load_sample(run, 0, 0, sample_type=Stubborn),
    "resume": lambda run: run.resume(sample_type=Stubborn),
    "load_state": lambda run: run.recovery.load_state(0, sample_type=Stubborn),
}

RESUMES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a text as bound": ({"max_adopted": "3"}, ValueError, "max_adopted is a whole number"),
    "a bound below nothing": ({"max_adopted": -1}, ValueError, "max_adopted counts from 0"),
    "a text as checkpoint": ({"checkpoint_rollout_id": "0"}, InvalidOutputError, "checkpoint_rollout_id"),
    "names as lineage": ({"lineage": ["lr"]}, InvalidOutputError, "expected a dict, got list"),
    "an object in the lineage": ({"lineage": {"lr": object()}}, UnsupportedValueError, "lineage"),
}


@pytest.mark.parametrize("read", READS)
def test_what_the_constructor_of_a_sample_class_raises_is_no_damage(store_url: str, read: str) -> None:
    with run_of(store_url) as run, pytest.raises(TypeError, match=r"^mine$"):
        READS[read](recorded(run))


@pytest.mark.parametrize("what", RESUMES)
def test_arguments_of_resume_are_checked_before_anything_is_read(store_url: str, what: str) -> None:
    given, kind, message = RESUMES[what]
    with run_of(store_url) as run, pytest.raises(kind, match=message):
        recorded(run).resume(**given)


def test_a_lineage_is_a_dict_when_a_session_begins(sqlite_url: str) -> None:
    with run_of(sqlite_url) as run, pytest.raises(InvalidOutputError, match="expected a dict"):
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage=["lr"])  # type: ignore[arg-type]


def test_arrays_and_odd_keys_in_a_lineage_are_compared(store_url: str) -> None:
    with run_of(store_url) as run:
        same = {"lr": 1.0, "betas": np.array([0.9, 0.99]), 3: 4}
        assert recorded(run).resume(checkpoint_rollout_id=-1, lineage=same).next_rollout_id == 1
        point = run.resume(checkpoint_rollout_id=-1, lineage=same | {"betas": np.array([0.9, 0.95]), 3: 5})
        assert point.refused == "rollout 0 was generated with another 3, betas"


@pytest.mark.parametrize("kind", [None, "bogus", 1])
def test_there_is_no_other_kind_of_rollout(store_url: str, kind: Any) -> None:
    with run_of(store_url) as run:
        recorded(run).pin(0)
        for act in (run.delete_rollout, run.pin, run.unpin, run.rollout):
            with pytest.raises(ValueError, match="kind is 'train' or 'eval'"):
                act(0, kind=kind)
        with pytest.raises(ValueError, match="kind is 'train' or 'eval'"):
            load_sample(run, 0, 0, kind=kind)
        with pytest.raises(ValueError, match="kind is 'train' or 'eval'"):
            export_pt(run, 0, "x.pt", kind=kind)
        assert [pin.rollout_id for pin in run.pins()] == [0]
