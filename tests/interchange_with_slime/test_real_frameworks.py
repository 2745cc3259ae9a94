"""The store beside slime's and miles's own classes, from the checkouts that SLIME_CHECKOUT and MILES_CHECKOUT name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.outside import checkout

pytestmark = pytest.mark.slow  # each starts several interpreters that import torch

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")


def _run(program: str, *arguments: str, beside: str | None = None) -> None:
    """Run one of ``programs`` in a process that can import the framework in this checkout, or none."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(ROOT)
    if beside is not None:
        environment["SLIME_STORE_BESIDE"] = beside
    command = [sys.executable, str(PROGRAMS), program, *arguments]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{program}\n{done.stderr}"


@pytest.fixture
def slime() -> str:
    return checkout("slime")


@pytest.fixture
def miles() -> str:
    return checkout("miles")


def test_slimes_samples_and_outputs_come_back_as_slimes_own(store_url: str, slime: str) -> None:
    _run("record_slimes_samples", store_url, beside=slime)
    _run("load_slimes_samples_as_slimes", store_url, beside=slime)


def test_slimes_samples_go_through_a_process_without_slime_unchanged(store_url: str, slime: str) -> None:
    _run("record_slimes_samples", store_url, beside=slime)
    _run("load_slimes_samples_without_slime", store_url)
    _run("load_what_went_through_our_class", store_url, beside=slime)


def test_a_dump_of_slimes_goes_through_our_class_and_the_store_unchanged(
    sqlite_url: str, slime: str, tmp_path: Path
) -> None:
    dump = str(tmp_path / "3.pt")
    _run("write_a_dump_of_slimes", sqlite_url, dump, beside=slime)
    _run("read_slimes_dump_and_record_it", sqlite_url, dump)
    _run("compare_the_dump_with_the_store", sqlite_url, dump, beside=slime)


def test_miles_samples_come_back_with_miles_own_classes(store_url: str, miles: str) -> None:
    _run("record_miles_samples", store_url, beside=miles)
    _run("load_miles_samples_as_miles", store_url, beside=miles)


def test_miles_samples_go_through_a_process_without_miles_unchanged(store_url: str, miles: str) -> None:
    _run("record_miles_samples", store_url, beside=miles)
    _run("load_miles_samples_without_miles", store_url)
    _run("load_miles_samples_that_went_through_our_class", store_url, beside=miles)
