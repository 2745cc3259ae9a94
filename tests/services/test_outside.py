"""What is from outside the checkout is found, or its absence is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import outside

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (outside.DATA_VARIABLE, *map(outside.checkout_variable, outside.FRAMEWORKS)):
        monkeypatch.delenv(variable, raising=False)


def test_the_data_is_found_beside_a_checkout_wherever_that_is(tmp_path: Path) -> None:
    clone, data = tmp_path / "any" / "clone", tmp_path / "any" / "shared" / "data"
    clone.mkdir(parents=True)
    assert "GSM8K" in [what for what, _ in outside.missing(clone)]
    data.mkdir(parents=True)
    (data / outside.GSM8K_FILE).touch()
    assert outside.gsm8k_path(clone) == data / outside.GSM8K_FILE
    assert "GSM8K" not in [what for what, _ in outside.missing(clone)]


def test_what_is_named_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / outside.GSM8K_FILE).touch()
    monkeypatch.setenv(outside.DATA_VARIABLE, str(tmp_path))
    monkeypatch.setenv("SLIME_CHECKOUT", str(tmp_path))
    found = [what for what, _ in outside.missing()]
    assert "Interchange with miles" in found
    assert not {"Interchange with slime", "GSM8K"}.intersection(found)


def test_the_end_of_a_run_says_what_was_not_tested(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "tests" / "services", clone / "tests" / "services")
    shutil.copy(ROOT / "tests" / "conftest.py", clone / "tests")
    (clone / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (clone / "tests" / "test_nothing.py").write_text("def test_nothing(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_nothing.py"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    for what in ("Interchange with slime", "Interchange with miles", "GSM8K"):
        assert f"! {what} was NOT tested !" in done.stdout
    assert str(tmp_path / "shared" / "data" / outside.GSM8K_FILE) in done.stdout
