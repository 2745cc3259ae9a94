from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import budgets, profile, services
from benchmarks.__main__ import main
from benchmarks.budgets import Line
from benchmarks.systems import SYSTEMS

STORES = ["slime_store, SQLite", "slime_store, background"]


@pytest.fixture(autouse=True)
def in_a_directory_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(services, "server_programs", lambda: None)


def test_a_run_is_a_table_a_json_file_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "figures.json"), "--chart", str(tmp_path / "chart.svg")]
    assert main(["--tiny", "--no-memory", "--workloads", "W1", *files]) == 0
    shown = capsys.readouterr().out
    assert "PostgreSQL is NOT measured" in shown
    assert all(name in shown for name in SYSTEMS if "PostgreSQL" not in name)
    figures = json.loads((tmp_path / "figures.json").read_text())["workloads"]["W1"]
    assert all(figures[name]["record"] > 0 for name in STORES)
    assert figures[STORES[1]]["blocked"] < figures[STORES[1]]["record"]
    assert ElementTree.parse(tmp_path / "chart.svg").getroot().tag.endswith("svg")
    assert main(["--read", str(tmp_path / "figures.json"), "--markdown"]) == 0
    assert "| torch.save + fsync" in capsys.readouterr().out


@pytest.mark.slow  # starts the command line and the package several times
def test_budgets_are_checked_and_fail_a_run_only_when_asked_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "start_lines", lambda: [Line("a start", 2.0, 1.0, False, "s")])
    run = ["--tiny", "--workloads", "W3", "--systems", "torch.save + fsync", *STORES, "--check"]
    assert main(run) == 0
    assert main([*run, "--strict"]) == 1
    shown = capsys.readouterr().out
    assert "W3 peak memory, load one, SQLite" in shown
    assert "NOT MET" in shown and "not measured" in shown


def test_a_budget_is_kept_on_the_right_side() -> None:
    assert Line("speed", 5.0, 5.0, True, "x").met is True
    assert Line("speed", 4.9, 5.0, True, "x").met is False
    assert Line("bytes", 0.6, 0.55, False, "x").met is False
    assert Line("bytes", None, 0.55, False, "x").met is None


def test_a_profile_names_our_functions(capsys: pytest.CaptureFixture[str]) -> None:
    profile.main(["--tiny", "--top", "40"])
    shown = capsys.readouterr().out
    assert "load_train:" in shown
    assert "slime_store/" in shown
