"""What runs beside slime's or miles's own code, in a process of its own: ``python programs.py NAME ARGUMENTS``.

A process of its own, since which class ``sample_type=None`` means is decided once, and an imported framework stays.
The checkout is named by SLIME_STORE_BESIDE and comes last on ``sys.path``, after our ``tests`` is imported: the
frameworks have packages of that name as well.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image

from slime_store import Sample, SampleStore
from slime_store.testing import assert_same
from slime_store.types import Record, RolloutFnEvalOutput, RolloutFnTrainOutput
from tests.types.frameworks import fill_every_field

RUN = "beside slime"


def groups_of(kind: type[Any]) -> list[list[Any]]:
    """Return samples of this class as rollout functions make them: finished, aborted, split, with media."""
    full = fill_every_field(kind)
    finished = kind(index=1, prompt="2+2", tokens=[1, 2, 3], response="4", response_length=1, reward=1.0)
    finished.status, finished.weight_versions = kind.Status.COMPLETED, ["3", "3", "4"]
    finished.loss_mask, finished.rollout_log_probs = [1], [-0.5]
    finished.spec_info.spec_verify_ct, finished.prefix_cache_info.cached_tokens = 3, 5
    finished.trace = {"version": 1, "events": [{"ts": 0.1}]}
    media = kind(index=2, status=kind.Status.TRUNCATED)
    media.multimodal_inputs = {"images": [Image.new("RGB", (60, 40), "red")], "videos": None}
    media.multimodal_train_inputs = {"pixel_values": torch.ones(20, 60, dtype=torch.bfloat16)}
    media.rollout_routed_experts = torch.arange(24, dtype=torch.int32).reshape(3, 4, 2)
    holder = kind(index=3, metadata={"parent": kind(index=2, status=kind.Status.FAILED)})
    parts = [kind(index=4, rollout_id=7), kind(index=4, rollout_id=7)]
    return [[full, finished], [media, holder], [parts, [kind()]]]


def _open(url: str) -> SampleStore:
    return SampleStore.open(url)


def record_slimes_samples(url: str) -> None:
    from slime.rollout import base_types
    from slime.utils import types

    groups = groups_of(types.Sample)
    with _open(url) as store:
        run = store.run(RUN)
        run.record_train(0, base_types.RolloutFnTrainOutput(groups, {"loss": 0.5}))
        run.record_train(1, groups)
        data = {"math": {"rewards": [1.0, None], "truncated": [False, True], "samples": groups[0]}}
        run.record_eval(0, base_types.RolloutFnEvalOutput(data, {"math": 0.5}))
        run.record_eval(1, data)
    assert_same(groups, groups_of(types.Sample))  # slime goes on to work with them


def load_slimes_samples_as_slimes(url: str) -> None:
    """Slime is importable, and was not imported by this process."""
    assert "slime" not in sys.modules
    with _open(url) as store:
        run = store.run(RUN, create=False)
        loaded = run.load_train(0)
        from slime.utils import types

        groups = groups_of(types.Sample)
        assert_same(loaded.samples, groups, sample_types=False)
        assert_same(loaded, RolloutFnTrainOutput(groups, {"loss": 0.5}))
        sample = loaded.samples[0][1]
        assert type(sample) is types.Sample
        assert sample.status is types.Sample.Status.COMPLETED
        assert type(sample.spec_info) is types.Sample.SpecInfo
        assert sample.effective_response_length == 1
        assert_same(run.load_train(1), RolloutFnTrainOutput(groups, None))
        data = {"math": {"rewards": [1.0, None], "truncated": [False, True], "samples": groups[0]}}
        assert_same(run.load_eval(0), RolloutFnEvalOutput(data, {"math": 0.5}))
        assert_same(run.load_eval(1).data, data, sample_types=False)
        [first, *_] = run.iter_samples()
        assert type(first) is types.Sample
        ours = run.load_train(0, sample_type=Sample)
        assert type(ours.samples[0][0]) is Sample
        assert_same(ours.samples, groups)


def load_slimes_samples_without_slime(url: str) -> None:
    """Nothing but slime_store is here."""
    with _open(url) as store:
        run = store.run(RUN, create=False)
        loaded = run.load_train(0)
        assert "slime" not in sys.modules
        sample = loaded.samples[1][1]
        assert type(sample) is Sample
        assert type(sample.metadata["parent"]) is Sample
        assert_same(loaded.samples, groups_of(Sample))
        run.record_train(9, loaded)  # and back to where slime is


def load_what_went_through_our_class(url: str) -> None:
    from slime.utils import types

    with _open(url) as store:
        assert_same(store.run(RUN, create=False).load_train(9).samples, groups_of(types.Sample), sample_types=False)


def write_a_dump_of_slimes(url: str, path: str) -> None:
    """As slime's ``save_debug_rollout_data`` does it: a flat list of ``to_dict``."""
    from slime.utils import types

    flat = [sample for sample in _flat(groups_of(types.Sample)) if "parent" not in sample.metadata]  # no class inside
    torch.save({"rollout_id": 3, "samples": [sample.to_dict() for sample in flat]}, path)


def read_slimes_dump_and_record_it(url: str, path: str) -> None:
    dump = torch.load(path, weights_only=False)  # written by the test itself a moment ago
    samples = [Sample.from_dict(each) for each in dump["samples"]]
    with _open(url) as store:
        store.run(RUN).record_train(dump["rollout_id"], [samples])


def compare_the_dump_with_the_store(url: str, path: str) -> None:
    from slime.utils import types

    dump = torch.load(path, weights_only=False)
    with _open(url) as store:
        run = store.run(RUN, create=False)
        [slimes] = run.load_train(3).samples
        [ours] = run.load_train(3, sample_type=Sample).samples
    assert_same([sample.to_dict() for sample in slimes], dump["samples"], sample_types=False)
    assert_same([sample.to_dict() for sample in ours], dump["samples"])
    again = [types.Sample.from_dict(sample.to_dict()) for sample in ours]
    assert_same(again, [types.Sample.from_dict(each) for each in dump["samples"]], sample_types=False)


# -- miles


def miles_groups(types: Any) -> list[list[Any]]:
    """Return samples of miles with what only miles has."""
    adapter, spec = types.AdapterRef("lora-a", 3), types.RewardSpec("math", None)
    groups = groups_of(types.Sample)
    routed = types.Sample(index=5, adapter=adapter, reward_spec=spec, routing_key="key", opd_reverse_kl=[0.25])
    # as the engine gives them: read-only
    routed.rollout_routed_experts = np.frombuffer(np.arange(24, dtype=np.int32).tobytes(), np.int32).reshape(3, 4, 2)
    routed.rollout_indexer_topk = np.frombuffer(np.arange(6, dtype=np.int32).tobytes(), np.int32).reshape(3, 1, 2)
    groups[0][0].adapter, groups[0][0].reward_spec = adapter, spec
    return [*groups, [routed]]


def record_miles_samples(url: str) -> None:
    from miles.utils import types

    with _open(url) as store:
        run = store.run(RUN)
        run.record_train(0, miles_groups(types))
        run.record_train(1, RolloutFnTrainOutput(miles_groups(types)), background=True)


def load_miles_samples_as_miles(url: str) -> None:
    assert "miles" not in sys.modules
    with _open(url) as store:
        run = store.run(RUN, create=False)
        ours = run.load_train(0).samples
        assert type(ours[3][0]) is Sample  # there is no slime here, and miles was not asked for
        from miles.utils import types

        expected = miles_groups(types)
        for rollout_id in (0, 1):
            loaded = run.load_train(rollout_id, sample_type=types.Sample).samples
            assert_same(loaded, expected, sample_types=False)
            [sample] = loaded[3]
            assert type(sample) is types.Sample
            assert type(sample.adapter) is types.AdapterRef and sample.adapter.slot == 3
            assert sample.reward_spec == types.RewardSpec("math", None)
            assert sample.rollout_routed_experts.flags.writeable
        assert_same(ours, expected)
        [*_, last] = run.iter_samples(sample_type=types.Sample)
        assert_same(last, expected[3][0], sample_types=False)


def load_miles_samples_without_miles(url: str) -> None:
    with _open(url) as store:
        run = store.run(RUN, create=False)
        loaded = run.load_train(0)
        assert "miles" not in sys.modules
        [sample] = loaded.samples[3]
        assert sample.routing_key == "key"
        assert isinstance(sample.adapter, Record) and sample.adapter.fields == {"name": "lora-a", "slot": 3}
        run.record_train(9, loaded)  # a neutral record goes back as what it stands for


def load_miles_samples_that_went_through_our_class(url: str) -> None:
    from miles.utils import types

    with _open(url) as store:
        loaded = store.run(RUN, create=False).load_train(9, sample_type=types.Sample)
    assert type(loaded.samples[3][0].adapter) is types.AdapterRef
    pairs = list(zip(_flat(loaded.samples), _flat(miles_groups(types)), strict=True))
    for ours, theirs in pairs:
        if "parent" in theirs.metadata:
            pairs.append((ours.metadata.pop("parent"), theirs.metadata.pop("parent")))
        # what our class adds are fields that miles does not have, at their defaults
        assert_same({name: vars(ours)[name] for name in vars(theirs)}, vars(theirs), sample_types=False)
    assert len(pairs) == 9


def _flat(tree: Any) -> list[Any]:
    return [sample for each in tree for sample in _flat(each)] if isinstance(tree, list) else [tree]


if __name__ == "__main__":
    if "SLIME_STORE_BESIDE" in os.environ:
        sys.path.append(os.environ["SLIME_STORE_BESIDE"])
    globals()[sys.argv[1]](*sys.argv[2:])
