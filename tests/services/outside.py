"""What tests need from outside the checkout: slime's and miles's own code, and the GSM8K data. None is ours to ship."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FRAMEWORKS = ("slime", "miles")
GSM8K_FILE = "gsm8k_model_solutions.jsonl"
DATA_VARIABLE = "SLIME_STORE_DATA"
_ROOT = Path(__file__).parents[2]


def checkout_variable(framework: str) -> str:
    """Return the environment variable that names a checkout of the framework."""
    return f"{framework.upper()}_CHECKOUT"


def find_checkout(framework: str) -> str | None:
    """Return the checkout of the framework that is named, if any."""
    return os.environ.get(checkout_variable(framework)) or None


def checkout(framework: str) -> str:
    """Return the checkout of the framework; skip the test without one."""
    found, variable = find_checkout(framework), checkout_variable(framework)
    if found is None:
        pytest.skip(f"{variable} does not name a checkout of {framework}")
    assert (Path(found) / framework / "utils" / "types.py").is_file(), f"{variable} names no {framework}"
    return found


def gsm8k_path(root: Path = _ROOT) -> Path:
    """Return where the GSM8K solutions are to be: in the folder that is named, or in `shared/data` beside ``root``."""
    given = os.environ.get(DATA_VARIABLE)
    return (Path(given) if given else root.parent / "shared" / "data") / GSM8K_FILE


def missing(root: Path = _ROOT) -> list[tuple[str, str]]:
    """Return what is not there: what goes untested, and how to have it tested."""
    found = [
        (f"Interchange with {framework}", f"set {checkout_variable(framework)} to a checkout of {framework}")
        for framework in FRAMEWORKS
        if find_checkout(framework) is None
    ]
    if not gsm8k_path(root).exists():
        found.append(("GSM8K", f"there is no {gsm8k_path(root)}; set {DATA_VARIABLE} to the folder of {GSM8K_FILE}"))
    return found
