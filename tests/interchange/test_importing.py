"""Taking files in: each content once, in order, one bad file not stopping the rest (cases I1, I3, A7, B6)."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slime_store import SampleFilter, SampleStore
from slime_store.errors import AlreadyImportedError, InvalidDumpError, ReadOnlyStoreError
from slime_store.interchange import ImportedFile, import_path
from slime_store.interchange.importing import find_dumps
from slime_store.store.imports import ImportSource, record_import
from slime_store.testing import assert_same, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from slime_store.types import Placeholder, RolloutFnTrainOutput, Sample, iter_leaf_samples
from tests.interchange.archives import dump_of, saved
from tests.services.tables import counts, value


def dumped(folder: Path, rollout_id: int, *, seed: int = 0, name: str | None = None) -> Path:
    content = dump_of(make_train_output(2, 2, seed=seed).samples, rollout_id)
    return saved(folder / (name or f"{rollout_id}.pt"), content)


def test_i1_an_honest_multimodal_dump_comes_in_and_is_equal(store_url: str, tmp_path: Path) -> None:
    sample = make_sample(0, group_index=0)
    sample.multimodal_inputs = {"images": [Image.linear_gradient("L").resize((8, 8)).convert("RGB")], "videos": None}
    sample.multimodal_train_inputs = {
        "pixel_values": torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, 2, 2]]),
        "mm_vision_num_patches": [4],
    }
    sample.rollout_routed_experts = np.arange(12, dtype=np.int32).reshape(3, 2, 2)
    sample.metadata |= {
        "score": np.float32(0.1),
        "when": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "video": Path("/data/a.mp4"),
        "tools": defaultdict(list, {"search": [1]}),
    }
    sample.tool_call_count = 3
    file = saved(tmp_path / "7.pt", dump_of([sample]))
    with pytest.raises(Exception, match=r"weights_only|Unsupported|WeightsUnpickler"):
        torch.load(file, weights_only=True)  # torch's own restricted reader refuses it
    with run_of(store_url) as run:
        (done,) = import_path(run, file).recorded
    assert done.placeholders == () and done.notes == ()
    ((loaded,),) = loaded_train(store_url, 7, sample_type=Sample).samples
    assert_same(loaded, sample)
    assert set(vars(loaded)) == set(vars(sample))


def test_i3_the_identical_file_is_taken_in_once(store_url: str, tmp_path: Path) -> None:
    file = dumped(tmp_path, 12)
    with run_of(store_url) as run:
        (first,) = import_path(run, file).files
    before = counts(store_url)
    copy = tmp_path / "elsewhere" / "12_copy.pt"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    with run_of(store_url) as run:
        for again in (file, copy):
            (skipped,) = import_path(run, again).files
            assert (skipped.action, skipped.rollout_id, skipped.attempt) == ("skipped", 12, 1)
    assert first.action == "recorded" and counts(store_url) == before
    with run_of(store_url, "another") as run:
        assert import_path(run, file).recorded
    assert value(store_url, "SELECT count(*) FROM rollouts") == 2


def test_i3_other_content_for_the_same_rollout_is_a_further_attempt(store_url: str, tmp_path: Path) -> None:
    with run_of(store_url) as run:
        run.record_train(12, make_train_output(2, 2, seed=0))
        done = [import_path(run, dumped(tmp_path, 12, seed=seed)).files[0] for seed in (1, 2, 1)]
        assert [(each.action, each.attempt) for each in done] == [("recorded", 2), ("recorded", 3), ("skipped", 2)]
        newest = make_train_output(2, 2, seed=2)
        assert_same(run.load_train(12, sample_type=Sample).samples, newest.samples)
        found = list(run.iter_samples(SampleFilter(rollout_ids=12), sample_type=Sample))
        assert_same(found, list(iter_leaf_samples(newest.samples)))  # attempts are not mixed


def test_i3_a_rollout_that_was_deleted_can_be_imported_again(store_url: str, tmp_path: Path) -> None:
    file = dumped(tmp_path, 12)
    with run_of(store_url) as run:
        import_path(run, file)
        run.delete_rollout(12)
        assert value(store_url, "SELECT count(*) FROM imports") == 0
        assert import_path(run, file).recorded


def test_i3_of_two_imports_of_one_file_at_once_one_records(store_url: str, tmp_path: Path) -> None:
    file = dumped(tmp_path, 12)
    with run_of(store_url) as run:
        results: list[ImportedFile] = []
        start = threading.Barrier(4)

        def work() -> None:
            start.wait()
            results.extend(import_path(run, file).files)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(each.action for each in results) == ["recorded", "skipped", "skipped", "skipped"]
    assert value(store_url, "SELECT count(*) FROM rollouts") == 1


def test_i3_the_check_and_the_record_are_one_transaction(store_url: str) -> None:
    source = ImportSource(b"digest", "1.pt", "inferred", {})
    with run_of(store_url) as run:
        output = RolloutFnTrainOutput([[make_sample(0)]])
        record_import(run, 1, output, source)
        with pytest.raises(AlreadyImportedError, match="attempt 1 of train rollout 1"):
            record_import(run, 1, output, source)
        assert record_import(run, 2, output, source).rollout_id == 2  # the content alone does not say which rollout


def test_a_folder_is_taken_in_the_order_of_the_rollouts(store_url: str, tmp_path: Path) -> None:
    details = tmp_path / "details"
    for rollout_id in (10, 9, 2):
        dumped(details / "rollout_data", rollout_id, seed=rollout_id)
    dumped(details / "rollout_data", 9, seed=1, name="eval_9.pt")
    saved(details / "train_data" / "2_0.pt", {"rollout_id": 2, "tokens": []})
    (details / "rollout_data" / "notes.txt").write_text("x")
    seen: list[tuple[int, int, str]] = []
    with run_of(store_url) as run:
        report = import_path(run, details, progress=lambda done, total, file: seen.append((done, total, file.action)))
        assert [(each.kind, each.rollout_id) for each in report.files] == [
            ("train", 2),
            ("train", 9),
            ("eval", 9),
            ("train", 10),
        ]
        assert seen == [(n, 4, "recorded") for n in (1, 2, 3, 4)]
        dumped(details / "rollout_data", 11)
        again = import_path(run, details)
        assert [each.action for each in again.files] == ["skipped"] * 4 + ["recorded"]
    assert [each.path.name for each in find_dumps(details, "eval")] == ["eval_9.pt"]


def test_a7_one_bad_file_does_not_stop_the_rest(store_url: str, tmp_path: Path) -> None:
    dumped(tmp_path, 1)
    (tmp_path / "2.pt").write_bytes(b"hello")
    dumped(tmp_path, 3)
    with run_of(store_url) as run:
        report = import_path(run, tmp_path)
        assert [each.action for each in report.files] == ["recorded", "failed", "recorded"]
        assert (len(report.recorded), len(report.skipped)) == (2, 0)
        assert report.failed[0].reason == "it is not a file of torch.save" and report.failed[0].rollout_id == 2
        assert [info.rollout_id for info in run.rollouts()] == [1, 3]


def test_a7_a_value_that_cannot_be_kept_is_marked_or_refused(store_url: str, tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    output = make_train_output(2, 2)
    output.samples[1][0].metadata["deep"] = deep
    file = saved(tmp_path / "7.pt", dump_of(output.samples))
    with run_of(store_url) as run:
        (failed,) = import_path(run, file, strict=True).failed
        assert "metadata" in failed.reason and "group 1, sample 0" in failed.reason and run.rollouts() == []
        (done,) = import_path(run, file).recorded
        assert len(done.placeholders) == 1 and done.placeholders[0].startswith("group 1, sample 0, metadata['deep']")
        loaded = run.load_train(7, sample_type=Sample).samples
        kept: Any = loaded[1][0].metadata["deep"]
        while isinstance(kept, list):
            (kept,) = kept
        assert isinstance(kept, Placeholder)
        assert_same([loaded[0], loaded[1][1]], [output.samples[0], output.samples[1][1]])


def test_a_path_that_is_not_there_and_a_folder_without_dumps_are_errors(sqlite_url: str, tmp_path: Path) -> None:
    with run_of(sqlite_url) as run:
        with pytest.raises(InvalidDumpError, match="no such file or folder"):
            import_path(run, tmp_path / "nowhere")
        (tmp_path / "empty").mkdir()
        with pytest.raises(InvalidDumpError, match=r"no dump \(\*\.pt\)"):
            import_path(run, tmp_path / "empty")
        dumped(tmp_path / "empty", 1)
        with pytest.raises(InvalidDumpError, match="no eval dump"):
            import_path(run, tmp_path / "empty", kind="eval")


def test_a_read_only_store_takes_nothing_in(store_url: str, tmp_path: Path) -> None:
    file = dumped(tmp_path, 1)
    with run_of(store_url):
        pass
    with opened(store_url, read_only=True) as store, pytest.raises(ReadOnlyStoreError):
        import_path(store.run("contract", create=False), file)


def test_a_file_may_be_removed_as_soon_as_it_is_imported(sqlite_url: str, tmp_path: Path) -> None:
    output = make_train_output(1, 1)
    output.samples[0][0].rollout_routed_experts = torch.arange(60_000, dtype=torch.int32).reshape(-1, 4, 3)
    file = saved(tmp_path / "7.pt", dump_of(output.samples))
    with SampleStore.open(sqlite_url) as store:
        import_path(store.run("contract"), file)
        file.unlink()
        assert_same(store.run("contract").load_train(7, sample_type=Sample).samples, output.samples)


def test_a_dump_whose_samples_contain_themselves_fails_alone(sqlite_url: str, tmp_path: Path) -> None:
    samples: list[Any] = []
    samples.append(samples)
    torch.save({"rollout_id": 1, "samples": samples}, tmp_path / "1.pt")
    torch.save({"rollout_id": 2, "samples": [{"prompt": "p", "status": "completed"}]}, tmp_path / "2.pt")
    with SampleStore.open(sqlite_url) as store:
        report = import_path(store.run("r"), tmp_path)
    assert [each.action for each in report.files] == ["failed", "recorded"]
    assert "nest too deeply" in (report.files[0].reason or "")
