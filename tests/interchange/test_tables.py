"""Samples as Parquet, JSON lines and CSV: the same rows whatever is in them (cases A6 and L5 of exports)."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter
from slime_store.errors import ArraysPrunedError, ExportError, MissingPackageError
from slime_store.interchange import export_samples
from slime_store.interchange import parquet as parquet_module
from slime_store.interchange.columns import PLACE, SAMPLE
from slime_store.testing import make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import opened, run_of

NASTY = 'half \ud83d,\r\n"quoted"\u2028\u2029\x85 tail\x00end'
SHOWN = 'half \ufffd,\r\n"quoted"\u2028\u2029\x85 tail\u2400end'


def nasty_samples() -> list[Sample]:
    return [
        Sample(index=0, prompt=NASTY, response=NASTY, label=NASTY, metadata={NASTY: NASTY}, reward=1.0),
        Sample(index=1, response="=1+1", reward=math.nan, label=42, metadata={"a": [math.nan, -math.inf]}),
        Sample(index=2, response="", reward={"acc": True, "len": np.float32(0.5), "x": math.inf}, metadata=None),
        Sample(index=3, response="-2", reward="good", metadata={1: "int", "1": "text", (0, 1): {"set"}}),
        Sample(index=2**40, reward=None, rollout_log_probs=[-0.5, -math.inf], tokens=[1, 2], loss_mask=[1, 0]),
    ]


def lines_of(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    text = path.read_bytes().decode()
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text[:-1].split("\n")]


@pytest.fixture
def nasty_url(store_url: str) -> str:
    with run_of(store_url) as run:
        run.record_train(7, RolloutFnTrainOutput([nasty_samples()]))
    return store_url


def test_a6_l5_one_json_object_in_each_physical_line(nasty_url: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with opened(nasty_url, read_only=True) as store:
        (done,) = export_samples(store.run("contract", create=False), path, format="jsonl")
    assert (done.path, done.n_rows) == (str(path), 5)
    assert len(path.read_text("utf-8").splitlines()) == 5  # which cuts at U+2028 and NEL as well
    rows = lines_of(path)
    assert [row["position"] for row in rows] == [0, 1, 2, 3, 4] and {row["run"] for row in rows} == {"contract"}
    assert rows[0]["prompt"] == rows[0]["response"] == rows[0]["label"] == SHOWN
    assert rows[0]["metadata"] == {SHOWN: SHOWN}
    assert [row["reward"] for row in rows] == [1.0, "nan", None, None, None]
    assert [row["reward_json"] for row in rows] == [None, None, {"acc": True, "len": 0.5, "x": "inf"}, "good", None]
    assert rows[1]["metadata"] == {"a": ["nan", "-inf"]} and rows[1]["label"] == "42"
    assert rows[2]["metadata"] is None and rows[2]["response"] == ""
    assert rows[3]["metadata"] == {"$dict": [[1, "int"], ["1", "text"], [[0, 1], ["set"]]]}
    assert rows[4]["index"] == 2**40 and rows[4]["rollout_log_probs"] == [-0.5, "-inf"]
    assert rows[4]["loss_mask"] == [1, 0] and rows[3]["loss_mask"] is None


def test_l5_csv_reads_back_with_the_same_rows(nasty_url: str, tmp_path: Path) -> None:
    import pandas

    with run_of(nasty_url) as run:
        export_samples(run, tmp_path / "x.csv", format="csv")
        export_samples(run, tmp_path / "safe.csv", format="csv", csv_safe=True, fields=["response", "reward"])
    text = (tmp_path / "x.csv").read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 5 == len(pandas.read_csv(tmp_path / "x.csv"))
    assert [row["response"] for row in rows] == [SHOWN, "=1+1", "", "-2", ""]
    assert [row["reward"] for row in rows] == ["1.0", "nan", "", "", ""]
    assert rows[2]["reward_json"] == '{"acc":true,"len":0.5,"x":"inf"}' and "tokens" not in rows[0]
    safe = list(csv.DictReader(io.StringIO((tmp_path / "safe.csv").read_bytes().decode(), newline="")))
    assert [row["response"] for row in safe] == [SHOWN, "'=1+1", "", "'-2", ""]


def test_parquet_has_the_declared_types_whatever_the_rows(nasty_url: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    with run_of(nasty_url) as run:
        run.record_eval(7, make_eval_output())
        export_samples(run, tmp_path / "all.parquet")
        for name, where in (("none", SampleFilter(rollout_ids=99)), ("eval", SampleFilter(kind="eval"))):
            export_samples(run, tmp_path / f"{name}.parquet", where)
    table, none, evals = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("all", "none", "eval"))
    assert table.schema == none.schema == evals.schema and none.num_rows == 0 and evals.num_rows == 10
    assert str(table.schema.field("tokens").type) == "list<element: int32>"
    rows = table.to_pylist()
    assert rows[0]["response"] == SHOWN and json.loads(rows[0]["metadata"]) == {SHOWN: SHOWN}
    assert math.isnan(rows[1]["reward"]) and rows[2]["reward"] is None and rows[4]["reward"] is None
    assert rows[4]["rollout_log_probs"] == [-0.5, -math.inf] and rows[0]["tokens"] == []
    assert rows[0]["loss_mask"] is None and rows[0]["rollout_log_probs"] is None
    assert [row["dataset"] for row in rows[5:]] == ["gsm8k"] * 6 + ["aime"] * 4
    assert rows[0]["dataset"] is None and rows[0]["session"] == 1


def test_what_a_column_cannot_hold_is_in_extra(store_url: str, tmp_path: Path) -> None:
    sample = make_sample(0, group_index=0, tool_calls=[{"t": 1}])
    sample.index = "seven"  # type: ignore[assignment]
    sample.loss_mask = [0.5, 1.0]  # type: ignore[list-item]
    sample.tokens = [1, 2**40]
    sample.teacher_log_probs = torch.tensor([0.5, 0.25], dtype=torch.bfloat16)  # type: ignore[assignment]
    sample.rollout_routed_experts = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([[sample]]))
        export_samples(run, tmp_path / "x.jsonl", format="jsonl")
        chosen = ["rollout_routed_experts", "metadata.difficulty", "extra.tool_calls", "reward"]
        export_samples(run, tmp_path / "few.jsonl", format="jsonl", fields=chosen)
        export_samples(run, tmp_path / "few.parquet", fields=chosen)
        with pytest.raises(ValueError, match=r"no column 'respnse' of samples; did you mean .*'response'"):
            export_samples(run, tmp_path / "no.jsonl", format="jsonl", fields=["respnse"])
        with pytest.raises(ValueError, match="format is 'parquet'"):
            export_samples(run, tmp_path / "no.xml", format="xml")  # type: ignore[arg-type]
    (row,) = lines_of(tmp_path / "x.jsonl")
    assert row["index"] is None and row["tokens"] is None and row["teacher_log_probs"] == [0.5, 0.25]
    assert row["extra"] == {
        "index": "seven",
        "loss_mask": [0.5, 1.0],
        "tokens": [1, 2**40],
        "tool_calls": [{"t": 1}],
    }
    assert "rollout_routed_experts" not in row
    (few,) = lines_of(tmp_path / "few.jsonl")
    assert list(few) == [column.name for column in PLACE] + chosen
    assert few["rollout_routed_experts"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert few["extra.tool_calls"] == [{"t": 1}] and few["metadata.difficulty"] in range(5)
    import pyarrow.parquet as pq

    (same,) = pq.read_table(tmp_path / "few.parquet").to_pylist()
    assert same["rollout_routed_experts"] == few["rollout_routed_experts"]
    assert same["metadata.difficulty"] == str(few["metadata.difficulty"])


def test_a_template_gives_a_file_for_each_rollout(store_url: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with run_of(store_url) as run:
        for rollout_id in (3, 4):
            run.record_train(rollout_id, make_train_output(1, 2))
        run.record_eval(4, make_eval_output({"aime": 1}))
        done = export_samples(
            run, tmp_path / "out" / "{rollout_id}.csv", format="csv", progress=lambda *n: seen.append(n)
        )
        again = export_samples(run, f"{tmp_path}/new/", SampleFilter(kind="train"), format="jsonl")
    assert [(os.path.basename(each.path), each.n_rows) for each in done] == [
        ("3.csv", 2),
        ("4.csv", 2),
        ("eval_4.csv", 2),
    ]
    assert [os.path.basename(each.path) for each in again] == ["3.jsonl", "4.jsonl"]
    assert seen == [(n, 6) for n in range(1, 7)]


def test_a_store_gives_the_rows_of_every_run(store_url: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with run_of(store_url, name) as run:
            run.record_train(0, make_train_output(1, 1))
    with opened(store_url, read_only=True) as store:
        export_samples(store, tmp_path / "x.jsonl", format="jsonl")
        with pytest.raises(ExportError, match="needs one run"):
            export_samples(store, tmp_path / "{rollout_id}.jsonl", format="jsonl")
    assert [row["run"] for row in lines_of(tmp_path / "x.jsonl")] == ["a", "b"]


def test_a_stream_is_taken_but_not_by_parquet(sqlite_url: str) -> None:
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(1, 2))
        stream = io.BytesIO()
        (done,) = export_samples(run, stream, format="jsonl", fields=["reward"])
        assert done.path == "-" and len(stream.getvalue().splitlines()) == 2
        with pytest.raises(ExportError, match="needs a file"):
            export_samples(run, io.BytesIO())


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_a_file_appears_whole_or_not_at_all(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any
) -> None:
    from slime_store.interchange.rows import RowMaker

    target = tmp_path / f"x.{format}"
    target.write_bytes(b"before")
    make = RowMaker.row

    def fail(self: RowMaker, located: Any) -> list[Any]:
        if located.place.position == 3:
            raise OSError(28, "No space left on device")
        return make(self, located)

    monkeypatch.setattr(RowMaker, "row", fail)
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(1, 4))
        with pytest.raises(ExportError, match="No space left"):
            export_samples(run, target, format=format)
    assert target.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == "." or path.suffix == f".{format}") == [
        target.name
    ]


def test_row_groups_are_bounded(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet_module, "GROUP_VALUES", 3000)
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(2, 8))
        export_samples(run, tmp_path / "x.parquet")
        assert 2 < pq.ParquetFile(tmp_path / "x.parquet").num_row_groups < 16
        monkeypatch.setattr(parquet_module, "GROUP_ROWS", 1)
        export_samples(run, tmp_path / "x.parquet")
        assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups == 16


def test_parquet_without_pyarrow_names_the_extra(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with run_of(sqlite_url) as run, pytest.raises(MissingPackageError, match=r"slime-store\[parquet\]"):
        export_samples(run, tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.parametrize("reader", ["duckdb", "polars", "pandas", "datasets"])
def test_other_programs_read_the_parquet_file(
    sqlite_url: str, tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "x.parquet")
    with run_of(sqlite_url) as run:
        run.record_train(7, RolloutFnTrainOutput([nasty_samples()]))
        run.record_train(8, make_train_output(2, 4))
        export_samples(run, path)
        expected = [sample.reward for sample in run.iter_samples(SampleFilter(rollout_ids=8), fields=["reward"])]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    module = pytest.importorskip(reader)
    if reader == "duckdb":
        query = f"SELECT reward, len(tokens) FROM '{path}' WHERE rollout_id = 8 ORDER BY position"
        found = duckdb_rows = module.sql(query).fetchall()
        assert [row[0] for row in found] == expected and duckdb_rows[0][1] == 80
    elif reader == "polars":
        frame = module.read_parquet(path).filter(module.col("rollout_id") == 8)
        assert frame["reward"].to_list() == expected and len(frame["tokens"][0]) == 80
    elif reader == "pandas":
        frame = module.read_parquet(path)
        assert frame[frame.rollout_id == 8].reward.tolist() == expected
    else:
        loaded = module.Dataset.from_parquet(path, cache_dir=str(tmp_path / "cache"))
        rows = [row for row in loaded if row["rollout_id"] == 8]
        assert [row["reward"] for row in rows] == expected and len(rows[0]["tokens"]) == 80


def test_every_attribute_of_slime_and_miles_has_a_column() -> None:
    from slime_store.mapping.fields import FIELDS

    left = {"adapter", "reward_spec", "routing_key"}  # of miles, in `extra`
    assert {column.attribute for column in SAMPLE} - {None} == set(FIELDS) - left


def test_the_page_on_files_lists_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "interchange.md").read_text("utf-8")
    for column in (*PLACE, *SAMPLE):
        assert column.meaning
        assert f"| `{column.name}` | {column.type} | {column.meaning} | {column.when} |\n" in page


def test_l5_no_cell_of_safe_csv_is_a_formula_whatever_its_column_is_called(sqlite_url: str) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "plain", "-"]
    samples = [Sample(label=text, response=text, metadata={"k": text}, reward=-1.0) for text in texts]
    for sample in samples:
        sample.note = sample.response  # type: ignore[attr-defined]
    stream = io.BytesIO()
    fields = ["label", "response", "reward", "metadata.k", "extra.note", "metadata"]
    with run_of(sqlite_url) as run:
        run.record_train(0, [samples])
        export_samples(run, stream, format="csv", fields=fields, csv_safe=True)
    for row, text in zip(csv.DictReader(io.StringIO(stream.getvalue().decode(), newline="")), texts, strict=True):
        safe = text if text == "plain" else "'" + text
        assert [row[name] for name in ("label", "response", "metadata.k", "extra.note")] == [safe] * 4
        assert row["reward"] == "-1.0"


def test_csv_of_a_run_without_its_arrays_needs_none(store_url: str) -> None:
    samples = [make_sample(i, group_index=0, note=f"n{i}") for i in range(2)]
    with run_of(store_url) as run:
        for rollout_id in range(2):
            run.record_train(rollout_id, RolloutFnTrainOutput([samples]))
        run.prune(keep_arrays_last=1)
        stream = io.BytesIO()
        (done,) = export_samples(run, stream, format="csv")
        with pytest.raises(ArraysPrunedError):
            export_samples(run, io.BytesIO(), format="jsonl")
    extra = [row["extra"] for row in csv.DictReader(io.StringIO(stream.getvalue().decode(), newline=""))]
    assert done.n_rows == 4 and [json.loads(each)["note"] for each in extra] == ["n0", "n1"] * 2
