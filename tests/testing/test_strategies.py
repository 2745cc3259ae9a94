"""Strategies reach the values they are for, and all of them can be compared."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from PIL import Image

from slime_store.testing import assert_same, document_strategies, strategies
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, iter_leaf_samples

_FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
# the same search each time, and no time spent on making what it finds simpler
_SEARCH = settings(
    max_examples=5000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=True,
    phases=[Phase.generate],
)


def _depth(tree: Any) -> int:
    return 1 + max(map(_depth, tree), default=0) if isinstance(tree, list) else 0


def _parts(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        for each in value.items():
            yield from _parts(each)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _parts(each)


REACHED: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bool]]] = {
    "NaN": (document_strategies.scalar_values(), lambda v: isinstance(v, float) and math.isnan(v)),
    "-0.0": (document_strategies.scalar_values(), lambda v: v == 0.0 and str(v) == "-0.0"),
    "an int beyond 64 bits": (document_strategies.scalar_values(), lambda v: isinstance(v, int) and v >= 2**64),
    "NUL": (document_strategies.text_values(), lambda v: "\0" in v),
    "a lone surrogate": (document_strategies.text_values(), lambda v: any("\ud800" <= c <= "\udfff" for c in v)),
    "an aware datetime": (document_strategies.rich_values(), lambda v: getattr(v, "tzinfo", None) is not None),
    "a 0-dim array": (strategies.arrays(), lambda v: v.ndim == 0),
    "an empty array": (strategies.arrays(), lambda v: v.size == 0),
    "a structured array": (strategies.arrays(), lambda v: v.dtype.names is not None),
    "a text array": (strategies.arrays(), lambda v: v.dtype.kind == "U"),
    "an object array": (strategies.arrays(), lambda v: v.dtype.hasobject),
    "a datetime64 array": (strategies.arrays(), lambda v: v.dtype.kind == "M"),
    "a big-endian array": (strategies.arrays(), lambda v: v.dtype.byteorder == ">"),
    "an array in odd memory order": (strategies.arrays(), lambda v: not v.flags.c_contiguous),
    "a bf16 tensor": (strategies.tensors(), lambda v: v.dtype is torch.bfloat16),
    "an fp8 tensor": (strategies.tensors(), lambda v: v.dtype is torch.float8_e4m3fn and v.numel() > 0),
    "a 0-dim tensor": (strategies.tensors(), lambda v: v.ndim == 0),
    "a strided tensor": (strategies.tensors(), lambda v: not v.is_contiguous()),
    "a palette image": (strategies.images(), lambda v: v.mode == "P" and "transparency" in v.info),
    "an empty image": (strategies.images(), lambda v: v.width == 0),
    "a tuple key": (strategies.documents(), lambda v: isinstance(v, dict) and any(type(k) is tuple for k in v)),
    "a tensor inside": (
        strategies.documents(),
        lambda v: any(torch.is_tensor(p) for p in _parts(v)) and type(v) is list,
    ),
    "three levels": (strategies.nested(st.just(1)), lambda v: _depth(v) == 3),
    "a flat list": (strategies.nested(st.just(1)), lambda v: v and _depth(v) == 1),
    "levels side by side": (
        strategies.nested(st.just(1)),
        lambda v: any(len({*map(type, g)}) == 2 for g in v if g and g != 1),
    ),
    "an empty list": (strategies.nested(st.just(1)), lambda v: v == []),
    "a dict reward": (strategies.rewards(), lambda v: isinstance(v, dict) and len(v) > 1),
    "a numpy reward": (strategies.rewards(), lambda v: isinstance(v, np.generic)),
    "an undeclared attribute": (strategies.samples(), lambda v: "trace" in vars(v)),
    "no metadata": (strategies.samples(), lambda v: v.metadata is None),
    "an eval without samples": (strategies.eval_outputs(), lambda v: any("samples" not in d for d in v.data.values())),
}


@pytest.mark.parametrize("what", REACHED)
def test_the_strategies_reach(what: str) -> None:
    strategy, condition = REACHED[what]
    assert condition(find(strategy, condition, settings=_SEARCH))


@pytest.mark.parametrize("mode", document_strategies.IMAGE_MODES)
def test_images_of_every_mode_are_made(mode: str) -> None:
    image = find(strategies.images(), lambda v: v.mode == mode and v.width * v.height > 1, settings=_SEARCH)
    assert isinstance(image, Image.Image)
    assert_same(image.copy(), image)


@_FEW
@given(value=strategies.documents())
def test_any_document_is_the_same_as_its_copy(value: Any) -> None:
    assert_same(copy.deepcopy(value), value)


@_FEW
@given(output=strategies.train_outputs())
def test_train_outputs_hold_samples_and_are_the_same_as_their_copy(output: RolloutFnTrainOutput) -> None:
    assert all(type(leaf) is Sample for leaf in iter_leaf_samples(output.samples))
    assert_same(copy.deepcopy(output), output)


@_FEW
@given(output=strategies.eval_outputs())
def test_eval_outputs_hold_samples_and_are_the_same_as_their_copy(output: RolloutFnEvalOutput) -> None:
    for dataset in output.data.values():
        assert all(type(sample) is Sample for sample in dataset.get("samples", []))
    assert_same(copy.deepcopy(output), output)
