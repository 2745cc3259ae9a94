"""Dumps are read where slime_store is not installed: what only it knows is written as plain data, all of it."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import pickle
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from slime_store.codecs.framed_image import FramedImage
from slime_store.interchange import export_pt, import_path
from slime_store.interchange.portable import PortableSamples
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import run_of
from slime_store.types import MultimodalType, Placeholder, Record, RolloutFnTrainOutput, Sample

LOST = Placeholder("io:TextIOWrapper", "<file>")


@dataclasses.dataclass
class Box:
    of: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    of: Any


class Pair(NamedTuple):
    a: Any
    b: Any


class Foreign:
    """A pickle module that knows nothing of slime_store."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            assert not module.startswith("slime_store"), f"{module}.{name}"
            return super().find_class(module, name)

    load = pickle.load


def foreign(path: str) -> Any:
    return torch.load(path, weights_only=False, pickle_module=Foreign)


def portable(value: Any) -> tuple[Any, list[str]]:
    found = PortableSamples()
    return found.value(value, "v"), found.replaced


def word(of: str, name: str, value: Any) -> Record:
    return Record(f"app:{of}", "enum", {"name": name, "value": value})


def objects(value: Any) -> Any:
    array = np.empty((1, 2), object)
    array[0, 1] = value
    return array


def an_image(value: Any) -> Image.Image:
    image = Image.new("L", (2, 2))
    image.info["x"] = value
    return image


def frames(value: Any) -> FramedImage:
    return FramedImage([Image.new("L", (2, 2)), an_image(value)], 0, "GIF")


NESTED: dict[str, Any] = {
    "counter": lambda x: collections.Counter({x: 2}),
    "namespace": lambda x: types.SimpleNamespace(a=x),
    "objects": objects,
    "exception": lambda x: ValueError("no", x),
    "slice": lambda x: slice(x, None),
    "sample": lambda x: Sample(metadata={"x": x}),
    "dataclass": Box,
    "key_in_a_dataclass": lambda x: {Key((x,)): 1},
    "named_tuple": lambda x: {"a": Pair(1, x), Pair(x, 1): 2},
    "image": an_image,
    "frames": frames,
    "record": lambda x: Record("app:Box", "dataclass", {"of": [x]}),
    "frozenset": lambda x: frozenset([(x, frozenset([x]))]),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_only_the_store_knows_is_replaced_wherever_it_is(name: str, tmp_path: Path) -> None:
    for i, lost in enumerate((LOST, word("Verdict", "RIGHT", "right"), Record("app:Box", "dataclass", {"of": 1}))):
        value, replaced = portable(NESTED[name](lost))
        torch.save({"value": value}, tmp_path / f"{i}.pt")
        again = foreign(str(tmp_path / f"{i}.pt"))
        assert type(again["value"]) is type(value) and replaced
        assert portable(value)[1] == []


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Sample.Status.ABORTED, "aborted"),
        (Sample.SpecInfo(1), {**vars(Sample.SpecInfo(1))}),
        (MultimodalType("image", "<image>"), types.SimpleNamespace(**vars(MultimodalType("image", "<image>")))),
        ([Sample("p")], [Sample("p").to_dict()]),
    ],
    ids=["status", "counters", "dataclass", "sample"],
)
def test_values_of_the_stores_own_classes_are_plain_ones(value: Any, plain: Any) -> None:
    made, replaced = portable(value)
    assert made == plain and replaced == ["v[0]" if type(value) is list else "v"]


def test_an_image_of_several_frames_is_a_list_of_images() -> None:
    images, replaced = portable(frames(LOST))
    assert [type(image) for image in images] == [Image.Image] * 2
    assert images[1].info == {"x": "<file>"} and replaced == ["v", "v.frames[1].info['x']"]


def test_metrics_and_what_else_the_file_holds_are_plain_too(sqlite_url: str, tmp_path: Path) -> None:
    sample = Sample(metadata={"x": open})
    with run_of(sqlite_url) as run:
        run.record_train(0, RolloutFnTrainOutput([[sample]], {"of": len}), strict=False)
        done = export_pt(run, 0, tmp_path / "0.pt")
    content = foreign(done.path)
    assert content["metrics"] == {"of": repr(len)} and content["samples"][0]["metadata"] == {"x": repr(open)}
    assert done.replaced == ("metrics['of']", "sample 0, metadata['x']")


A, B = word("A", "X", 1), word("B", "X", 1)


@pytest.mark.parametrize(
    ("keys", "plain"),
    [
        ([A, B, 1], [str(A), str(B), 1]),
        ([A, word("A", "Y", 2), B], [str(A), 2, str(B)]),
        ([(A, 1), (B, 1), (1, 1)], [str((A, 1)), str((B, 1)), (1, 1)]),
        ([frozenset([A]), frozenset([B])], [str(frozenset([A])), str(frozenset([B]))]),
        ([Key(A), Key(B), Key(1)], [str(Key(A)), str(Key(B)), Key(1)]),
        ([Pair(A, 1), Pair(B, 1)], [str(Pair(A, 1)), str(Pair(B, 1))]),
        ([A, str(A), 1], [f"{A} (key 2)", str(A), 1]),
        ([LOST, Placeholder("a:B", LOST.text)], [str(LOST), str(Placeholder("a:B", LOST.text))]),
        ([word("L", "X", [1]), (word("L", "Y", {}), 1)], [str(word("L", "X", [1])), (str(word("L", "Y", {})), 1)]),
        ([word("T", "X", True), 1.0, 2], [str(word("T", "X", True)), 1.0, 2]),
    ],
    ids=["enum", "two", "tuple", "frozenset", "dataclass", "named", "text", "placeholder", "unhashable", "bool"],
)
def test_keys_that_would_be_equal_are_texts_that_differ(keys: list[Any], plain: list[Any]) -> None:
    made, replaced = portable({key: i for i, key in enumerate(keys)})
    assert list(made.items()) == [(key, i) for i, key in enumerate(plain)]
    assert set(replaced) and all(path.startswith("v[key]") for path in replaced)
    members, _ = portable(set(keys))
    assert members == set(plain)


def test_the_second_of_two_moments_of_one_name_stays_the_second(sqlite_url: str, tmp_path: Path) -> None:
    moments = {"datetime": dt.datetime(2024, 10, 27, 2, 30, fold=1), "time": dt.time(2, 30, fold=1)}
    with run_of(sqlite_url) as run:
        run.record_train(0, RolloutFnTrainOutput([[Sample(metadata=moments)]]))
        done = export_pt(run, 0, tmp_path / "0.pt")
        assert_same(foreign(done.path)["samples"][0]["metadata"], moments)
        import_path(run, done.path, strict=True)
        assert_same(run.load_train(0, sample_type=Sample).samples[0][0].metadata, moments)


def test_numpy_texts_that_numpy_would_cut_are_plain_ones() -> None:
    made, replaced = portable([np.str_("a\0"), np.bytes_(b"a\0"), np.str_("a"), {np.str_("k\0"): 1}])
    assert_same(made, ["a\0", b"a\0", np.str_("a"), {"k\0": 1}])
    assert replaced == ["v[0]", "v[1]", "v[3][key]"]
