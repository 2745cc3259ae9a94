"""What tests need from outside the checkout: slime's and miles's own code, and the GSM8K data. None is ours to ship."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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


def duckdb_with_sqlite() -> Any:
    """Return a DuckDB connection that can attach SQLite files; skip the test without DuckDB or its extension."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    try:
        if find_spec("duckdb_extensions") is not None:  # the extension as a Python package, for machines offline
            from duckdb_extensions import import_extension

            import_extension("sqlite_scanner", con=connection)
        else:
            connection.execute("INSTALL sqlite")
        connection.execute("LOAD sqlite")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB cannot have its sqlite extension: {error}")
    return connection


def _has_sqlite_extension() -> bool:
    installed = (Path.home() / ".duckdb" / "extensions").glob("*/*/sqlite_scanner.duckdb_extension")
    return find_spec("duckdb_extension_sqlite_scanner") is not None or any(installed)


def missing(root: Path = _ROOT) -> list[tuple[str, str]]:
    """Return what is not there: what goes untested, and how to have it tested."""
    found = [
        (f"Interchange with {framework}", f"set {checkout_variable(framework)} to a checkout of {framework}")
        for framework in FRAMEWORKS
        if find_checkout(framework) is None
    ]
    if find_spec("duckdb") is None or not _has_sqlite_extension():
        found.append(("What docs/sql.md says of DuckDB", "install duckdb and its sqlite extension: INSTALL sqlite"))
    if shutil.which("sqlite3") is None:
        found.append(("What docs/sql.md says of the sqlite3 shell", "apt-get install sqlite3"))
    if shutil.which("datasette") is None:
        found.append(("What docs/sql.md says of Datasette", "pip install datasette"))
    if not gsm8k_path(root).exists():
        found.append(("GSM8K", f"there is no {gsm8k_path(root)}; set {DATA_VARIABLE} to the folder of {GSM8K_FILE}"))
    return found
