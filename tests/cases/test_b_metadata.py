"""Section B of the cases: metadata is a dict of anything, and samples have attributes that no class declares."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import sys
import threading
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import torch
from PIL import Image

from slime_store import Sample
from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same, make_sample, same
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.types import Placeholder, Record
from tests.cases.children import in_a_new_process
from tests.cases.trips import round_trip
from tests.services.tables import value


class Verdict(enum.Enum):
    RIGHT = "right"
    WRONG = ("tuple", 1)


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass(frozen=True)
class Judge:
    name: str
    scores: dict[Any, Any] = field(default_factory=dict)


Box = namedtuple("Box", "x y")

RICH: dict[str, Any] = {
    "naive datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    "aware datetime": dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    "utc datetime": dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc),
    "zoned datetime": dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "date": dt.date(2026, 1, 2),
    "time": dt.time(3, 4, tzinfo=dt.timezone.utc),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=2**127 + 1),
    "path": Path("/data/a b.mp4"),
    "enum member": Verdict.WRONG,
    "flags": Flags.A | Flags.B,
    "dataclass": Judge("rule", {(1, 2): [Verdict.RIGHT]}),
    "namedtuple": Box(1, [2.0]),
    "defaultdict": defaultdict(list, {"a": [1], 2: []}),
    "OrderedDict": OrderedDict([("b", 1), ("a", 2)]),
    "Counter": Counter("abca"),
    "deque": deque([1, (2,)], maxlen=5),
    "exception": ValueError("no", 3),
    "range": range(3, 30, 4),
    "slice": slice(1, None, 2),
    "namespace": SimpleNamespace(a=1, b=[None]),
    "bytes": b"\xff\x00",
    "large bytes": b"\xff\x00" * 5000,
    "ellipsis": ...,
    "sample": make_sample(3, reward={"a": (1,)}),
    "image": Image.new("RGB", (40, 30), (1, 2, 3)),
    "palette image": Image.new("P", (4, 3), 7),
    "bf16 tensor": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
    "large tensor": torch.arange(6000, dtype=torch.float32).reshape(60, 100).t(),
    "torch things": [torch.Size([1, 2]), torch.bfloat16, torch.device("cpu")],
}


def _raised() -> Exception:
    try:
        raise ValueError("with a traceback")
    except ValueError as error:
        return error


class Stubborn:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


UNSUPPORTED: dict[str, Any] = {
    "lambda": lambda: None,
    "exception with a traceback": _raised(),
    "lock": threading.Lock(),
    "class": Judge,
    "module": sys,
    "generator": (i for i in range(3)),
    "object without a text": Stubborn(),
    "subclass of dict": type("MyDict", (dict,), {})(a=1),
    "subclass of int": type("MyInt", (int,), {})(1),
    "local enum": enum.Enum("Local", "A").A,  # type: ignore[attr-defined]
}


# -- B1, B2: containers, keys, rich values -------------------------------------------------------------


def test_b1_tuples_sets_and_keys_that_are_no_text_come_back(store_url: str) -> None:
    metadata = {
        "box": (1, 2), 1: "int", "1": "str", None: "n", (0, 1): "tuple key", "s": {3}, "fs": frozenset("a"),
        "b": b"\xff", "c": 1 + 2j, "nested": [{2: {("x",): set()}}], "$tuple": [1], "z": 1, "a": 2, 2.5: (),
    }  # fmt: skip
    metadata |= {True: "t"}  # the key 1 again: Python keeps the first key and the last value
    samples = [Sample(metadata=metadata), Sample(metadata={True: "t", "true": 1}), Sample(metadata={"$int": "ff"})]
    samples += [Sample(metadata={"$dict": [[1, 2]]}), Sample(metadata={"a": {"$float": "nan"}, "b": {"$x": 1}})]
    loaded = round_trip(store_url, *samples)
    assert_same(loaded, samples)
    assert len(loaded[0].metadata) == len(metadata)


@pytest.mark.parametrize("kind", RICH)
def test_b2_rich_values_come_back_from_every_place(store_url: str, kind: str) -> None:
    rich = RICH[kind]
    sample = Sample(
        metadata={"value": rich, "list": [rich, (rich,)]},
        train_metadata={"value": rich},
        reward={"value": rich},
        label=rich,
        prompt=[{"role": "user", "content": [rich]}],
        multimodal_inputs={"images": [rich]},
    )
    sample.undeclared = rich  # type: ignore[attr-defined]
    with run_of(store_url) as run:
        run.record_train(0, [[sample]], state={"buffer": [rich]})
        run.record_eval(0, {"d": {"samples": [sample], "judge": rich}})
    assert_same(loaded_train(store_url, 0, sample_type=Sample).samples, [[sample]])
    assert_same(loaded_eval(store_url, 0, sample_type=Sample).data, {"d": {"samples": [sample], "judge": rich}})


@pytest.mark.parametrize("kind", RICH)
def test_b2_metrics_and_configs_hold_rich_values(store_url: str, kind: str) -> None:
    with opened(store_url) as store:
        run = store.run("contract", config={"value": RICH[kind]})
        run.record_train(0, SimpleNamespace(samples=[], metrics={"value": RICH[kind]}))
    with opened(store_url, read_only=True) as store:
        assert_same(store.runs()[0].config, {"value": RICH[kind]})
        assert_same(store.run("contract", create=False).rollouts()[0].metrics, {"value": RICH[kind]})


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_b2_what_is_not_supported_is_refused_or_marked(store_url: str, kind: str) -> None:
    sample = Sample(index=4, metadata={"a": 1, "deep": [0, {"bad": UNSUPPORTED[kind]}]})
    path = "group 0, sample 0, metadata['deep'][1]['bad']"
    with run_of(store_url) as run:
        with pytest.raises(UnsupportedValueError) as error:
            run.record_train(0, [[sample]])
        assert error.value.path == path
        assert run.rollouts() == []
        assert run.record_train(0, [[sample]], strict=False).placeholders == (path,)
    loaded = loaded_train(store_url, 0, sample_type=Sample).samples[0][0]
    mark = loaded.metadata["deep"][1].pop("bad")
    assert isinstance(mark, Placeholder)
    assert mark.type_name.endswith(type(UNSUPPORTED[kind]).__qualname__)
    assert_same(loaded, Sample(index=4, metadata={"a": 1, "deep": [0, {}]}))


def test_b2_a_mark_and_a_neutral_record_come_back_as_what_they_are(store_url: str) -> None:
    values = [
        Placeholder("m:T", "half \ud83d <text>"),
        Record("gone.module:Verdict", "enum", {"name": "A", "value": (1, 2)}),
        Record("gone.module:Judge", "dataclass", {"name": "x", "scores": {1: [2]}}),
        Record("gone.module:Box", "namedtuple", {"x": 1, "y": None}),
    ]
    samples = [Sample(metadata={"value": each, "list": [each]}) for each in values]
    assert_same(round_trip(store_url, *samples), samples)
    with run_of(store_url) as run:  # and once more, as a copy of a store does
        run.record_train(1, loaded_train(store_url, 0, sample_type=Sample))
    assert_same(loaded_train(store_url, 1, sample_type=Sample).samples, [samples])


def test_b2_a_class_of_this_module_is_a_neutral_record_where_nobody_imported_it(store_url: str) -> None:
    values = [Verdict.WRONG, Judge("rule", {1: Verdict.RIGHT}), Box(1, 2)]
    round_trip(store_url, Sample(metadata={"values": values}))
    records = in_a_new_process(_records_without_this_module, store_url, __name__)
    assert records == [
        (f"{__name__}:Verdict", "enum", "WRONG"),
        (f"{__name__}:Judge", "dataclass", "rule"),
        (f"{__name__}:Box", "namedtuple", None),
    ]


def _records_without_this_module(url: str, module: str) -> list[tuple[str, str, Any]]:
    del sys.modules[module]  # this function's own: the process needed it to find the function
    values = loaded_train(url, 0).samples[0][0].metadata["values"]
    assert all(type(each).__name__ == "Record" for each in values), values
    return [(each.type_name, each.kind, each.fields.get("name")) for each in values]


# -- B3: None and empty ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("metadata", "train_metadata", "loss_mask", "rollout_log_probs", "tokens", "weight_versions", "prompt"),
        *("multimodal_inputs", "teacher_log_probs", "rollout_routed_experts", "label", "response", "reward"),
        *("apply_chat_template_kwargs", "session_id", "custom_rm_path", "status", "remove_sample", "index"),
        *("non_generation_time", "response_length", "spec_info", "prefix_cache_info", "undeclared"),
    ],
)
def test_b3_none_and_every_kind_of_empty_stay_apart(store_url: str, name: str) -> None:
    empties = [None, [], {}, (), "", 0, 0.0, False, set(), {"images": None, "videos": None}, [None]]
    samples = [Sample() for _ in empties]
    for sample, empty in zip(samples, empties, strict=True):
        setattr(sample, name, empty)
    loaded = round_trip(store_url, *samples)
    assert_same([getattr(sample, name) for sample in loaded], empties)


def test_b3_an_empty_mask_is_not_a_missing_one(store_url: str) -> None:
    loaded = round_trip(store_url, *[Sample(response_length=3, loss_mask=mask) for mask in ([], None, [0, 1, 1])])
    assert [sample.loss_mask for sample in loaded] == [[], None, [0, 1, 1]]
    assert value(store_url, "SELECT sum(effective_response_length) FROM samples") == 0 + 3 + 2


# -- B5: deep, cyclic, huge ------------------------------------------------------------------------------


def _deep(levels: int, kind: type = list) -> Any:
    tree: Any = "leaf"
    for _ in range(levels):
        tree = {"in": tree} if kind is dict else kind([tree])
    return tree


def _cycles() -> dict[str, Any]:
    loop: dict[str, Any] = {"n": 1}
    loop["self"] = [loop]
    row: list[Any] = []
    row.append((row,))
    sample = Sample()
    sample.metadata["me"] = sample
    return {"dict": loop, "list": row, "sample": sample}


@pytest.mark.parametrize("kind", ["dict", "list", "sample"])
def test_b5_a_cycle_is_a_named_error_and_nothing_is_written(store_url: str, kind: str) -> None:
    cycle = _cycles()[kind]
    outputs = [[[Sample(metadata={"a": cycle})]], [[Sample(reward={"a": cycle})]], [[Sample(prompt=[{"a": cycle}])]]]
    with run_of(store_url) as run:
        for output in outputs:
            with pytest.raises(UnsupportedValueError, match="contains itself"):
                run.record_train(0, output)
            with pytest.raises(UnsupportedValueError, match="contains itself"):
                run.record_eval(0, {"d": {"samples": output[0], "cycle": cycle}})
        assert run.rollouts(attempts=True) == []
        assert run.record_train(0, outputs[0], strict=False).n_samples == 1
    assert value(store_url, "SELECT count(*) FROM samples") == 1


@pytest.mark.parametrize("kind", [list, dict, tuple])
def test_b5_deep_nesting_works_or_is_a_named_error(store_url: str, kind: type) -> None:
    fine, deep = _deep(90, kind), _deep(2000, kind)
    assert_same(round_trip(store_url, Sample(metadata={"a": fine}))[0].metadata, {"a": fine})
    with run_of(store_url) as run:
        for sample in (Sample(metadata={"a": deep}), Sample(reward={"a": deep}), Sample(label=deep)):
            with pytest.raises(UnsupportedValueError, match="nests deeper than 100 levels"):
                run.record_train(1, [[sample]])
            assert run.record_train(1, [[sample]], strict=False, on_conflict="replace").placeholders
        run.delete_rollout(1)
        assert [info.rollout_id for info in run.rollouts(attempts=True)] == [0]


def test_b5_a_huge_text_comes_back(store_url: str) -> None:
    trace = "0123456789abcdé\n" * (50 * 2**20 // 16)
    sample = Sample(metadata={"trace": trace, "n": 1})
    assert same(round_trip(store_url, sample), [sample])
    longest = "max(length(metadata))" if store_url.startswith("sqlite") else "max(octet_length(metadata))"
    assert value(store_url, f"SELECT {longest} FROM sample_documents") < 1000  # the text is not in the document
