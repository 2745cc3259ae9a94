"""Weight versions: their order of first use, their parameters and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from slime_store import ParamInfo, Sample, SampleFilter
from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import opened, run_of
from tests.services.tables import rows


def test_versions_are_numbered_by_first_use_and_labels_repeat_in_each_session(store_url: str) -> None:
    sessions = ([["10"], ["2", "10", "3"]], [["1", "2"], ["10"]])
    for first_id, lists in zip((0, 10), sessions, strict=True):
        with run_of(store_url) as run:
            for i, labels in enumerate(lists):
                run.record_train(first_id + i, [[Sample(weight_versions=labels)]])
            run.record_eval(first_id, {}, weight_version="eval only")
    with opened(store_url, read_only=True) as store:
        versions = store.run("contract", create=False).weight_versions()
    first, second = [(1, label) for label in ("10", "2", "3", "eval only")], ["1", "2", "10", "eval only"]
    assert [(each.session, each.label) for each in versions] == first + [(2, label) for label in second]
    assert [each.ordinal for each in versions] == list(range(1, 9))
    assert all(each.params is None and each.metadata is None for each in versions)


def test_a_version_keeps_its_parameters_and_notes(store_url: str) -> None:
    params = [
        ParamInfo("model.embed", torch.bfloat16, torch.Size([151_936, 64]), {"tp": (0, 1), "x": None}, 9_723_904, 0),
        ParamInfo("scale", torch.float8_e4m3fn, torch.Size([]), {}, 1, 3),
    ]
    notes = {"checkpoint": Path("/ckpt/7"), "lr": (1e-6, None), 1: float("nan")}
    with run_of(store_url) as run:
        told = run.record_weight_version("7", params=params)
        assert (told.session, told.label, told.ordinal, told.metadata) == (1, "7", 1, None)
        run.record_train(0, [[Sample(weight_versions=["7", "8"])]])
        told = run.record_weight_version("7", metadata=notes)  # adds to what is known
        assert_same(told.params, params)
        run.record_weight_version("9")
        assert_same(run.record_weight_version("8", params=[], metadata={}).params, [])
    with opened(store_url, read_only=True) as store:
        seven, eight, nine = store.run("contract", create=False).weight_versions()
    assert_same((seven.params, seven.metadata), (params, notes))
    assert_same((eight.label, eight.ordinal, eight.params, eight.metadata), ("8", 2, [], {}))
    assert_same((nine.label, nine.ordinal, nine.params, nine.metadata), ("9", 3, None, None))
    assert seven.params is not None
    assert type(seven.params[0].shape) is torch.Size
    assert seven.params[0].dtype is torch.bfloat16


@pytest.mark.parametrize("label", [7, "7\x00", "\ud83d", "", "a b"])
def test_a_label_means_the_same_in_a_sample_an_eval_and_a_note(store_url: str, label: Any) -> None:
    with run_of(store_url) as run:
        run.record_weight_version(label, metadata={"x": 1})
        run.record_train(0, [[Sample(index=3, weight_versions=[label])]])
        run.record_eval(0, {}, weight_version=label)
        assert [sample.index for sample in run.iter_samples(SampleFilter(weight_version=label))] == [3]
        (version,) = run.weight_versions()
    assert version.metadata == {"x": 1}
    assert rows(store_url, "SELECT kind FROM rollouts WHERE weight_version_pk IS NOT NULL") == [("eval",)]


def test_notes_that_cannot_be_kept_are_refused(store_url: str) -> None:
    with run_of(store_url) as run:
        with pytest.raises(UnsupportedValueError, match=r"metadata\['fh'\]"):
            run.record_weight_version("7", metadata={"fh": object()})
        assert run.weight_versions() == []
