"""Any data frame as a file (case L2: None, dicts and mixed types)."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter
from slime_store.dataframes import samples_df
from slime_store.errors import ExportError
from slime_store.interchange import export_frame
from slime_store.testing.contract.opening import run_of


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": pd.Series(["=1+1", None, "half \ud83d\r\n\u2028\x00"], dtype=object),
            "reward": pd.array([1.0, float("nan"), float("inf")], dtype="float64"),
            "n": pd.array([1, None, 2**53 + 1], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "at": pd.to_datetime(["2026-01-02T03:04:05Z", None, "2026-01-02T03:04:06.5Z"], format="ISO8601"),
        }
    )


def test_l2_frames_of_mixed_values_go_into_every_format(store_url: str, tmp_path: Path) -> None:
    samples = [
        Sample(index=0, reward=1.0, label=42, metadata={"k": 1}),  # type: ignore[arg-type]
        Sample(index=1, reward=None, label="a", metadata={"k": "text"}),
        Sample(index=2, reward={"a": 1}, metadata={"k": [1, {"x": None}]}),
        Sample(index=3, reward="x", metadata=None),  # type: ignore[arg-type]
    ]
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([samples]))
        columns = ["index", "reward", "reward_json", "label", "metadata.k"]
        frame = samples_df(run, columns=columns)
        dtypes = {
            str(samples_df(run, SampleFilter(reward_min=least), columns=columns).dtypes) for least in (None, 1, 9)
        }
    assert len(dtypes) == 1
    export_frame(frame, tmp_path / "x.parquet")
    rewards = pd.read_parquet(tmp_path / "x.parquet")["reward"].tolist()
    assert rewards[0] == 1.0 and all(map(math.isnan, rewards[1:]))
    export_frame(frame, tmp_path / "x.jsonl", "jsonl")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text("utf-8").splitlines()]
    assert [row["metadata.k"] for row in rows] == ["1", "text", '[1,{"x":null}]', None]
    export_frame(frame, tmp_path / "x.csv", "csv")
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["42", "a", "", ""]


def test_json_lines(frame: pd.DataFrame, tmp_path: Path) -> None:
    done = export_frame(frame, tmp_path / "x.jsonl", "jsonl")
    assert done.n_rows == 3
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text("utf-8").splitlines()]
    assert rows[0] == {"name": "=1+1", "reward": 1.0, "n": 1, "flag": True, "at": "2026-01-02T03:04:05+00:00"}
    assert rows[1] == dict.fromkeys(rows[0])
    assert rows[2]["name"] == "half \ufffd\r\n\u2028\u2400" and rows[2]["n"] == 2**53 + 1
    assert rows[2]["reward"] == "inf"


def test_csv(frame: pd.DataFrame) -> None:
    stream = io.BytesIO()
    export_frame(frame, stream, "csv", csv_safe=True)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue().decode(), newline="")))
    assert [row["name"] for row in rows] == ["'=1+1", "", "half \ufffd\r\n\u2028\u2400"]
    assert [row["n"] for row in rows] == ["1", "", str(2**53 + 1)]
    assert rows[0]["flag"] == "true" and rows[1]["at"] == ""


def test_parquet_keeps_the_types_of_the_frame_also_without_rows(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame = frame.assign(name=pd.array(["a", None, "b"], dtype="string"))
    export_frame(frame, tmp_path / "x.parquet")
    export_frame(frame.iloc[:0], tmp_path / "none.parquet")
    back, none = pd.read_parquet(tmp_path / "x.parquet"), pd.read_parquet(tmp_path / "none.parquet")
    assert back["n"].tolist() == [1, pd.NA, 2**53 + 1] and list(back.dtypes) == list(none.dtypes)
    mixed = pd.DataFrame({"x": [1, "a", {"b": 2}]})
    with pytest.raises(ExportError, match="no type for"):
        export_frame(mixed, tmp_path / "mixed.parquet")
    assert not (tmp_path / "mixed.parquet").exists()
    with pytest.raises(ValueError, match="format is"):
        export_frame(frame, tmp_path / "x", "xlsx")  # type: ignore[arg-type]
