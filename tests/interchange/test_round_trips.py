"""A dump that came in and goes out again is what it was: for slime's own loader, and for ours (cases I6, B6, B7)."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from slime_store.interchange import export_pt, import_path, read_dump
from slime_store.testing import assert_same, make_eval_output, strategies
from slime_store.testing.contract.opening import run_of
from slime_store.types import RolloutFnTrainOutput, Sample, iter_leaf_samples
from tests.interchange.archives import dump_of, loaded_by_torch, saved
from tests.types.frameworks import import_types

_PROPERTY = settings(
    max_examples=max(20, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def there_and_back(url: str, file: Path, rollout_id: int) -> Path:
    """Import a dump into a run of its own, strictly, and export it again."""
    with run_of(url, uuid.uuid4().hex) as run:
        (done,) = import_path(run, file, strict=True).files
        assert done.action == "recorded", done.reason
        target = file.parent / "out" / "{rollout_id}.pt"
        return Path(export_pt(run, rollout_id, target, kind=done.kind).path)


def flat(dump: Any) -> list[Any]:
    return list(iter_leaf_samples(dump.output.samples))


def _by_torch(file: Path) -> Any:
    """Return what torch makes of a file; examples that it cannot read itself are no examples."""
    try:
        return loaded_by_torch(file)
    except pytest.skip.Exception:
        assume(False)


@_PROPERTY
@given(output=strategies.train_outputs())
def test_any_dump_goes_through_the_store_unchanged(
    store_url: str, tmp_path: Path, output: RolloutFnTrainOutput
) -> None:
    file = saved(tmp_path / "7.pt", dump_of(output.samples))
    again = there_and_back(store_url, file, 7)
    assert_same(flat(read_dump(again)), flat(read_dump(file)))
    written, original = (_by_torch(each)["samples"] for each in (again, file))
    assert len(written) == len(original)
    for one, other in zip(written, original, strict=True):
        assert_same({name: one[name] for name in other}, other)


@pytest.fixture
def slime() -> Iterator[Any]:
    """slime's own class, loader and dump function."""
    for types_module in import_types("slime"):
        utils = importlib.import_module("slime.observability.rollout_data_utils")
        yield SimpleNamespace(
            Sample=types_module.Sample, load=utils.load_debug_rollout_data, save=utils.save_debug_rollout_data
        )


@_PROPERTY
@given(output=strategies.train_outputs())
def test_i6_slimes_own_loader_reads_what_slime_dumped_and_we_exported(
    store_url: str, tmp_path: Path, slime: Any, output: RolloutFnTrainOutput
) -> None:
    samples = [slime.Sample.from_dict(sample.to_dict()) for sample in iter_leaf_samples(output.samples)]
    template = str(tmp_path / "{rollout_id}.pt")
    slime.save(template, samples, rollout_id=7, evaluation=False)
    there_and_back(store_url, tmp_path / "7.pt", 7)
    _by_torch(tmp_path / "7.pt")
    loaded = slime.load(str(tmp_path / "out" / "{rollout_id}.pt"), rollout_id=7)
    assert_same(loaded, slime.load(template, rollout_id=7), sample_types=False)
    assert all(type(sample) is slime.Sample for sample in loaded)


def test_i6_slimes_forge_loader_reads_train_and_eval(store_url: str, tmp_path: Path, slime: Any) -> None:
    forge = importlib.import_module("slime.rollout.forge_load")
    output = make_eval_output()
    data = {
        name: {"samples": [slime.Sample.from_dict(sample.to_dict()) for sample in each["samples"]]}
        for name, each in output.data.items()
    }
    template = str(tmp_path / "{rollout_id}.pt")
    slime.save(template, data, rollout_id=3, evaluation=True)
    slime.save(template, data["gsm8k"]["samples"], rollout_id=3, evaluation=False)
    for name in ("eval_3.pt", "3.pt"):
        there_and_back(store_url, tmp_path / name, 3)
    args = SimpleNamespace(eval_reward_key=None, reward_key=None)
    for evaluation in (True, False):
        results = []
        for place in (template, str(tmp_path / "out" / "{rollout_id}.pt")):
            args.load_forge_rollout_data = place
            results.append(forge.generate_rollout(args, 3, None, evaluation=evaluation))
        assert_same(results[1], results[0], sample_types=False)


def test_i6_samples_dumped_as_objects_come_in_as_well(store_url: str, tmp_path: Path, slime: Any) -> None:
    sample = slime.Sample(index=3, tokens=[1], status=slime.Sample.Status.TRUNCATED)
    sample.spec_info.spec_verify_ct = 4
    file = saved(tmp_path / "7.pt", {"rollout_id": 7, "samples": [sample]})
    (read,) = flat(read_dump(file))
    assert type(read) is Sample
    assert_same(read, sample)
    there_and_back(store_url, file, 7)
    (loaded,) = slime.load(str(tmp_path / "out" / "7.pt"), rollout_id=7)
    assert_same(loaded, sample, sample_types=False)


def test_b7_what_miles_dumps_comes_back_as_miles_made_it(store_url: str, tmp_path: Path) -> None:
    for types_module in import_types("miles"):
        sample = types_module.Sample(index=0, tokens=[1, 2], response_length=1, routing_key="k")
        sample.adapter = types_module.AdapterRef("lora", 3)
        sample.reward_spec = types_module.RewardSpec("math")
        sample.rollout_indexer_topk = torch.arange(4, dtype=torch.int32).reshape(1, 2, 2).numpy()
        file = saved(tmp_path / "7.pt", {"rollout_id": 7, "metadata": {}, "samples": [sample.to_dict()]})
        assert vars(flat(read_dump(file))[0]).keys() == vars(sample).keys()
        again = torch.load(there_and_back(store_url, file, 7), weights_only=False)
        assert again["metadata"] == {}
        (data,) = again["samples"]
        assert type(data["adapter"]) is types_module.AdapterRef and data["reward_spec"].rm_type == "math"
        loaded = types_module.Sample.from_dict(data)
        assert_same({name: vars(loaded)[name] for name in vars(sample)}, vars(sample), sample_types=False)
