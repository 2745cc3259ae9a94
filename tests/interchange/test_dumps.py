"""What a dump says, and what is inferred: kind, groups, datasets, fields of other versions (cases I5, B7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store.errors import InvalidDumpError
from slime_store.interchange import export_pt, import_path, read_dump
from slime_store.interchange.dumps import infer_datasets, infer_groups
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, run_of
from slime_store.types import Record, RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, iter_leaf_samples
from tests.interchange.archives import dump_of, saved
from tests.services.tables import value


def shape(tree: Any) -> Any:
    return [shape(each) for each in tree] if isinstance(tree, list) else tree.index


def numbered(*group_indexes: Any, rollout_ids: Any = None) -> list[Sample]:
    ids = rollout_ids or [None] * len(group_indexes)
    return [
        Sample(index=i, group_index=group, rollout_id=execution)
        for i, (group, execution) in enumerate(zip(group_indexes, ids, strict=True))
    ]


def test_i5_groups_are_rebuilt_and_samples_without_one_stay_alone(store_url: str, tmp_path: Path) -> None:
    file = saved(tmp_path / "3.pt", dump_of(numbered(0, 0, 1, 1, None, None), 3))
    with run_of(store_url) as run:
        (done,) = import_path(run, file).files
    assert (done.nesting, done.n_samples) == ("inferred", 6)
    assert shape(loaded_train(store_url, 3).samples) == [[0, 1], [2, 3], [4], [5]]
    assert value(store_url, "SELECT nesting FROM imports") == "inferred"


@pytest.mark.parametrize(
    ("groups", "executions", "expected"),
    [
        ([], None, []),
        ([5, 5, 5], None, [[0, 1, 2]]),
        ([0, 1, 0, 1], None, [[0], [1], [2], [3]]),  # the order is kept: only neighbours are a group
        ([0, 0, 0, 1, 1], [9, 9, 10, None, None], [[[0, 1], [2]], [3, 4]]),  # compact siblings of one execution
        ([0, 0, 0], [9, 9, None], [[[0, 1], [2]]]),
        ([0, 0], [9, 10], [[0, 1]]),  # an execution for each sample is the usual shape
        ([None, None], [9, 9], [[0], [1]]),
        ([0, None, None, 0], None, [[0], [1], [2], [3]]),
        ([1, True, "a", "a"], None, [[0], [1], [2, 3]]),
        ([np.int64(4), np.int64(4)], None, [[0, 1]]),
        ([[], []], None, [[0], [1]]),
    ],
)
def test_i5_the_nesting_that_is_inferred(groups: list[Any], executions: Any, expected: Any) -> None:
    assert shape(infer_groups(numbered(*groups, rollout_ids=executions))) == expected


def test_i5_lists_that_a_file_has_itself_are_kept(store_url: str, tmp_path: Path) -> None:
    a, b, c = (sample.to_dict() for sample in numbered(0, 0, 1))
    file = saved(tmp_path / "3.pt", {"rollout_id": 3, "samples": [[[a, b]], [], [c]]})
    with run_of(store_url) as run:
        (done,) = import_path(run, file).files
    assert done.nesting == "given"
    assert shape(loaded_train(store_url, 3).samples) == [[[0, 1]], [], [2]]


def test_a_bare_list_of_samples_or_of_sample_objects_is_a_dump(tmp_path: Path) -> None:
    samples = numbered(0, 0, 1)
    for content in (samples, [sample.to_dict() for sample in samples], {"samples": tuple(samples)}):
        dump = read_dump(saved(tmp_path / "rollout_12.pt", content))
        assert (dump.kind, dump.rollout_id) == ("train", 12)
        assert_same(dump.output, RolloutFnTrainOutput([samples[:2], samples[2:]]))


@pytest.mark.parametrize(
    ("indexes", "sizes"),
    [
        ([], [0]),
        ([0, 1, 2], [3]),
        ([0, 1, 0, 1, 2, 0, 1], [2, 3, 2]),
        ([0, 0, 1, 1, 0, 0], [4, 2]),  # fan-out: siblings share an index
        ([0, 1, 1, 0], [3, 1]),
        ([0, 0], [2]),  # two datasets of one sample each look like siblings
        ([1, 2, 0], [3]),  # not how slime numbers them
        ([0, 3, 1], [3]),
        ([0, None, 0], [3]),
        (["a", "b"], [2]),
    ],
)
def test_an_evals_datasets_begin_where_the_numbers_begin_again(indexes: list[Any], sizes: list[int]) -> None:
    data = infer_datasets([Sample(index=index) for index in indexes])
    assert {name: len(each["samples"]) for name, each in data.items()} == {f"eval_{i}": n for i, n in enumerate(sizes)}


def test_an_eval_is_known_by_its_name_and_split_into_unnamed_datasets(store_url: str, tmp_path: Path) -> None:
    output = make_eval_output({"gsm8k": 3, "aime": 2})
    output.data["aime"]["samples"][1].status = Sample.Status.TRUNCATED
    output.data["aime"]["samples"][2].reward = {"score": 1.0}
    samples = [sample for each in output.data.values() for sample in each["samples"]]
    file = saved(tmp_path / "eval_40.pt", dump_of(samples, 40))
    with run_of(store_url) as run:
        (done,) = import_path(run, file).files
    assert (done.kind, done.rollout_id, done.n_samples) == ("eval", 40, 10)
    loaded = loaded_eval(store_url, 40)
    assert isinstance(loaded, RolloutFnEvalOutput) and loaded.metrics is None
    first, second = loaded.data["eval_0"], loaded.data["eval_1"]
    assert_same(first["samples"], output.data["gsm8k"]["samples"])
    assert_same(first["rewards"], output.data["gsm8k"]["rewards"])
    assert_same(second["samples"], output.data["aime"]["samples"])
    assert "rewards" not in second  # nobody knows which entry of the dict was meant
    assert second["truncated"] == [False, True, False, False]


def test_a_kind_that_the_name_does_not_say_can_be_given(tmp_path: Path) -> None:
    file = saved(tmp_path / "12.pt", dump_of([make_sample(0)], 12))
    assert read_dump(file, kind="eval").output.data.keys() == {"eval_0"}  # type: ignore[union-attr]


def test_a_file_that_names_its_datasets_is_an_eval_whatever_it_is_called(tmp_path: Path) -> None:
    content = dump_of([make_sample(0), make_sample(1)], 12)
    assert read_dump(saved(tmp_path / "stepeval_12.pt", content | {"datasets": {"aime": 2}})).kind == "eval"
    for datasets in ({"aime": 3}, {"aime": "2"}, ["aime"]):  # another program's
        dump = read_dump(saved(tmp_path / "12.pt", content | {"datasets": datasets}))
        assert (dump.kind, dump.extras) == ("train", {"datasets": datasets})


@pytest.mark.parametrize(("group_index", "is_noted"), [(None, True), (3, False)])
def test_a_name_that_may_mean_an_eval_is_noted(tmp_path: Path, group_index: Any, is_noted: bool) -> None:
    """As of ``--save-debug-rollout-data step{rollout_id}.pt``, where slime puts eval_ before the number."""
    file = saved(tmp_path / "stepeval_40.pt", dump_of([make_sample(0, group_index=group_index)], 40))
    dump = read_dump(file)
    assert (dump.kind, bool(dump.notes)) == ("train", is_noted)
    assert not is_noted or "may mean an eval" in dump.notes[0]
    assert read_dump(file, kind="train").notes == ()


def test_what_else_a_file_holds_at_its_top_is_kept_and_written_back(store_url: str, tmp_path: Path) -> None:
    extras = {"metadata": {"lag": 2, "ids": (1, 2)}, "torch_version": "2.6", 3: None}
    metrics = {"reward": 0.5}
    content = dump_of(make_train_output(1, 2).samples, 7, metrics=metrics) | extras
    with run_of(store_url) as run:
        import_path(run, saved(tmp_path / "7.pt", content))
        assert_same(run.load_train(7).metrics, metrics)
        exported = read_dump(export_pt(run, 7, tmp_path / "out.pt").path)
    assert_same(exported.extras, extras)
    assert_same(exported.output.metrics, metrics)


# -- samples of other versions and forks -----------------------------------------------------------------


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in data.items() if name not in names}


def exported_samples(store_url: str, tmp_path: Path, *samples: dict[str, Any]) -> list[dict[str, Any]]:
    """Import dicts as the dump of rollout 7, export it again and return the dicts in that."""
    import torch

    with run_of(store_url) as run:
        (done,) = import_path(run, saved(tmp_path / "7.pt", {"rollout_id": 7, "samples": list(samples)})).files
        assert done.action == "recorded", done.reason
        path = export_pt(run, 7, tmp_path / "out.pt").path
    written: list[dict[str, Any]] = torch.load(path, weights_only=False)["samples"]
    return written


def test_b7_fields_that_an_older_version_lacks_get_their_defaults(store_url: str, tmp_path: Path) -> None:
    whole = make_sample(0).to_dict()
    older = without(whole, "spec_info", "prefix_cache_info", "session_id", "loss_mask", "apply_chat_template_kwargs")
    (written,) = exported_samples(store_url, tmp_path, older)
    assert written.keys() == whole.keys()
    assert_same({name: written[name] for name in older}, older)
    assert written["spec_info"] == Sample.SpecInfo().to_dict() and written["loss_mask"] is None
    (sample,) = iter_leaf_samples(loaded_train(store_url, 7, sample_type=Sample).samples)
    assert_same(sample, Sample.from_dict(older))


def test_b7_keys_that_no_version_knows_are_kept_and_written_back(store_url: str, tmp_path: Path) -> None:
    newer = make_sample(0).to_dict() | {"routing_key": "k", "tool_call_count": 3, "trace": {"events": [(1, 2)]}}
    newer["spec_info"] = newer["spec_info"] | {"new_counter": 5}
    (written,) = exported_samples(store_url, tmp_path, newer)
    assert_same(written, newer)


def test_b7_a_status_that_slime_does_not_have_is_kept_or_refused(store_url: str, tmp_path: Path) -> None:
    good = make_sample(0).to_dict()
    strange, missing = good | {"status": "quarantined"}, without(good, "status")
    written = exported_samples(store_url, tmp_path, good, strange, missing)
    assert [each["status"] for each in written] == ["completed", "quarantined", "pending"]
    assert_same([without(each, "status") for each in written], [without(good, "status")] * 3)
    file = tmp_path / "7.pt"
    dump = read_dump(file)
    assert [note.partition(":")[0] for note in dump.notes] == ["sample 1", "sample 2"]
    with pytest.raises(InvalidDumpError, match="sample 1: its status 'quarantined'"):
        read_dump(file, strict=True)
    with run_of(store_url) as run:
        (skipped,) = import_path(run, file, strict=True).skipped
        (failed,) = import_path(run, saved(tmp_path / "8.pt", {"samples": [missing]}), strict=True).failed
    assert skipped.rollout_id == 7 and "no status" in failed.reason


def test_b7_counters_that_are_no_dict_are_kept_as_they_are(store_url: str, tmp_path: Path) -> None:
    odd = make_sample(0).to_dict() | {"spec_info": None}
    (written,) = exported_samples(store_url, tmp_path, odd)
    assert_same(written, odd)


def test_b7_miles_classes_come_back_as_what_they_are_or_as_neutral_records(store_url: str, tmp_path: Path) -> None:
    adapter = Record("miles.utils.types:AdapterRef", "dataclass", {"name": "a", "slot": 3})
    data = without(make_sample(0).to_dict(), "session_id") | {"adapter": adapter, "opd_reverse_kl": [0.5]}
    (written,) = exported_samples(store_url, tmp_path, data)
    assert written["adapter"].slot == 3 and written["opd_reverse_kl"] == [0.5]
    (sample,) = iter_leaf_samples(loaded_train(store_url, 7, sample_type=Sample).samples)
    assert sample.adapter.slot == 3 and sample.adapter == adapter


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"rollout_id": 1}, "no list of samples"),
        ("text", "no list of samples"),
        ({"rollout_id": 1, "samples": [3]}, "sample 0 is a int"),
        ({"rollout_id": 1, "samples": [{1: 2}]}, "no name of an attribute"),
        ({"rollout_id": "x", "samples": []}, "rollout_id is 'x'"),
        ({"rollout_id": 2**70, "samples": []}, "rollout_id is"),
        ({"samples": []}, "no number"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(InvalidDumpError, match=reason):
        read_dump(saved(tmp_path / "dump.pt", content))
