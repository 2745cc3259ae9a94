"""Files that slime loads: the same keys, whole storages only, and all or nothing (cases I6, B6, F2)."""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slime_store.errors import ExportError, RolloutNotFoundError
from slime_store.interchange import ExportedFile, export_pt, export_run, import_path, read_dump
from slime_store.interchange.portable import PortableSamples
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import run_of
from slime_store.types import Placeholder, Record, RolloutFnTrainOutput, Sample, iter_leaf_samples


def content_of(path: Path | str) -> Any:
    return torch.load(path, weights_only=False)


def test_i6_the_file_is_what_slime_writes(store_url: str, tmp_path: Path) -> None:
    output = make_train_output(2, 2)
    output.samples[0][0].tool_call_count = 3  # type: ignore[attr-defined]
    output.samples[0][1].multimodal_train_inputs = {"pixel_values": torch.ones(2, 3, dtype=torch.bfloat16)}
    output.samples[1][0].rollout_routed_experts = np.arange(4, dtype=np.int32).reshape(2, 1, 2)
    leaves = list(iter_leaf_samples(output.samples))
    with run_of(store_url) as run:
        run.record_train(7, output)
        done = export_pt(run, 7, tmp_path / "deep" / "{rollout_id}.pt")
    assert done == ExportedFile(str(tmp_path / "deep" / "7.pt"), "train", 7, 1, 4)
    content = content_of(done.path)
    assert_same(content, {"rollout_id": 7, "samples": [s.to_dict() for s in leaves], "metrics": output.metrics})
    assert [list(each) for each in content["samples"]] == [list(sample.to_dict()) for sample in leaves]
    assert type(content["samples"][0]["status"]) is str and type(content["samples"][0]["spec_info"]) is dict


def test_i6_an_eval_gets_its_prefix_and_keeps_its_datasets_here(store_url: str, tmp_path: Path) -> None:
    output = make_eval_output()
    with run_of(store_url) as run:
        run.record_eval(3, output)
        done = export_pt(run, 3, tmp_path / "{rollout_id}.pt", kind="eval")
        assert Path(done.path).name == "eval_3.pt"
        assert content_of(done.path)["datasets"] == {"gsm8k": 6, "aime": 4}
        again = read_dump(done.path)
        assert again.kind == "eval" and again.extras == {}
        assert_same(again.output, output)


@pytest.mark.parametrize(
    "name", ["step{rollout_id}.pt", "medi{rollout_id}.pt", "step_{rollout_id}.pt", "{rollout_id}.pt"]
)
def test_an_eval_comes_back_as_one_whatever_stands_before_its_number(
    sqlite_url: str, tmp_path: Path, name: str
) -> None:
    train, evaluated = make_train_output(1, 2), make_eval_output()
    with run_of(sqlite_url) as run, run_of(sqlite_url, "other") as other:
        run.record_train(40, train)
        run.record_eval(40, evaluated)
        export_run(run, tmp_path / "out" / name)
        for action in ("recorded", "skipped"):
            done = import_path(other, tmp_path / "out").files
            assert sorted((each.action, each.kind) for each in done) == [(action, "eval"), (action, "train")]
        assert_same(other.load_train(40), train)
        assert_same(other.load_eval(40), evaluated)


def test_i6_a_literal_name_a_folder_and_several_rollouts(store_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    seen: list[tuple[int, int]] = []
    with run_of(store_url) as run:
        for rollout_id in (9, 10, 11):
            run.record_train(rollout_id, make_train_output(1, 1, seed=rollout_id))
        run.record_train(10, make_train_output(1, 2, seed=0))
        run.record_eval(10, make_eval_output())
        assert export_pt(run, 9, tmp_path / "one.pt").path == str(tmp_path / "one.pt")
        done = export_run(run, folder, rollout_ids="10:", progress=lambda n, of, _file: seen.append((n, of)))
        assert [Path(each.path).name for each in done] == ["10.pt", "11.pt", "eval_10.pt"]
        assert [each.attempt for each in done] == [2, 1, 1] and seen == [(1, 3), (2, 3), (3, 3)]
        first = export_run(run, tmp_path / "first_{rollout_id}.pt", kind="train", rollout_ids=[9, 10], attempt=1)
        assert [(each.attempt, each.n_samples) for each in first] == [(1, 1), (1, 1)]
        assert len(export_run(run, f"{tmp_path}/new/")) == 4
        with pytest.raises(ExportError, match=r"need \{rollout_id\}"):
            export_run(run, tmp_path / "one.pt")
        with pytest.raises(ExportError, match="no such rollout"):
            export_run(run, folder, rollout_ids=99)
        with pytest.raises(RolloutNotFoundError):
            export_pt(run, 99, folder)
        with pytest.raises(RolloutNotFoundError):
            export_pt(run, 9, folder, attempt=2)


def test_i6_a_file_appears_whole_or_not_at_all(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out" / "7.pt"
    with run_of(sqlite_url) as run:
        run.record_train(7, make_train_output(1, 1))
        export_pt(run, 7, target)
        before = target.read_bytes()

        def fail(_content: Any, file: Any, **_options: Any) -> None:
            file.write(b"half")
            raise RuntimeError("PytorchStreamWriter failed writing file")

        with monkeypatch.context() as patched:
            patched.setattr(torch, "save", fail)
            with pytest.raises(ExportError, match=r"7\.pt: PytorchStreamWriter"):
                export_pt(run, 7, target)
        assert target.read_bytes() == before and [path.name for path in target.parent.iterdir()] == ["7.pt"]
        with pytest.raises(ExportError, match=r"Not a directory|File exists"):
            export_pt(run, 7, target / "inside.pt")


def test_f2_a_view_does_not_drag_its_storage_into_the_file(store_url: str, tmp_path: Path) -> None:
    batch = torch.randn(64, 5000)
    samples = [Sample(index=i, multimodal_train_inputs={"pixel_values": batch[i : i + 1]}) for i in range(64)]
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([samples]))
        path = export_pt(run, 0, tmp_path / "0.pt").path
    assert Path(path).stat().st_size < 1.2 * batch.nbytes
    loaded = content_of(path)["samples"]
    assert all(
        torch.equal(each["multimodal_train_inputs"]["pixel_values"][0], batch[i]) for i, each in enumerate(loaded)
    )


def test_f2_views_are_cloned_on_the_way_out() -> None:
    sample = Sample(metadata={"view": torch.arange(1000)[3:5], "deep": [(torch.arange(9)[:1],)]})
    data = PortableSamples().to_dict(sample, "sample 0")
    assert data["metadata"]["view"].untyped_storage().nbytes() == 16
    assert data["metadata"]["deep"][0][0].untyped_storage().nbytes() == 8


def test_b6_attributes_that_no_class_declares_survive_import_and_export(store_url: str, tmp_path: Path) -> None:
    sample = make_sample(0, group_index=0, tool_call_count=3, trace={"events": [{"ts": 1.5}], "ids": (1, 2)})
    with run_of(store_url) as run:
        run.record_train(1, RolloutFnTrainOutput([[sample]]))
        path = export_pt(run, 1, tmp_path / "1.pt").path
        (done,) = import_path(run, path).recorded
        ((loaded,),) = run.load_train(1, attempt=done.attempt, sample_type=Sample).samples
    assert_same(loaded, sample)
    assert loaded.tool_call_count == 3 and set(vars(loaded)) == set(vars(sample))


def test_values_that_only_the_store_knows_become_plain_ones_and_are_listed(store_url: str, tmp_path: Path) -> None:
    sample = Sample(
        metadata={
            "verdict": Record("app:Verdict", "enum", {"name": "RIGHT", "value": "right"}),
            "box": [Record("app:Box", "namedtuple", {"w": 1, "h": 2})],
            "lost": Placeholder("io:TextIOWrapper", "<file>"),
            "counts": defaultdict(int, {Record("app:Verdict", "enum", {"name": "WRONG", "value": "wrong"}): 2}),
            "last": deque([Record("app:Verdict", "enum", {"name": "WRONG", "value": "wrong"})], 3),
        }
    )
    sample.adapter = Record("app:Adapter", "dataclass", {"slot": 3})  # type: ignore[attr-defined]
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([[sample]]))
        done = export_pt(run, 0, tmp_path / "0.pt")
    assert done.replaced == (
        "sample 0, metadata['verdict']",
        "sample 0, metadata['box'][0]",
        "sample 0, metadata['lost']",
        "sample 0, metadata['counts'][key]",
        "sample 0, metadata['last'][0]",
        "sample 0, adapter",
    )
    (written,) = content_of(done.path)["samples"]
    assert written["metadata"] == {"verdict": "right", "box": [(1, 2)], "lost": "<file>"} | {
        "counts": {"wrong": 2},
        "last": deque(["wrong"], 3),
    }
    assert written["adapter"].slot == 3


def test_records_that_are_keys_become_texts_that_differ() -> None:
    node = Record("app:Node", "dataclass", {"name": "n"})
    pair = Record("app:Pair", "namedtuple", {"a": node, "b": 1})
    sample = Sample(metadata={"keys": {node: 1, node.numbered(1): 2, (pair,): 3}, "members": {node, node.numbered(1)}})
    metadata = PortableSamples().to_dict(sample, "sample 0")["metadata"]
    assert metadata["keys"] == {str(node): 1, f"{node} (key 2)": 2, ((str(node), 1),): 3}
    assert metadata["members"] == {str(node), f"{node} (key 2)"}
