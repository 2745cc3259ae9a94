"""The budgets that recording and loading keep, and whether a run of the benchmarks met them."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Figures
from benchmarks.report import BASE, ratio
from benchmarks.systems.parquet import Parquet
from benchmarks.systems.stores import BackgroundStore, PostgresStore, SqliteStore
from benchmarks.workloads import LAYERS, TOP_K, WORKLOADS

SQLITE, BACKGROUND, POSTGRES, PARQUET = (kind.name for kind in (SqliteStore, BackgroundStore, PostgresStore, Parquet))


@dataclass(frozen=True)
class Line:
    """One budget.

    Attributes:
        what: is bounded.
        value: was measured; None: it was not.
        budget: the bound.
        at_least: whether values above it are good, as of speed, or those below.
        unit: of both.
    """

    what: str
    value: float | None
    budget: float
    at_least: bool
    unit: str

    @property
    def met(self) -> bool | None:
        """Whether it is kept; None where nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget

    def row(self) -> list[str]:
        """Return the line for a table."""
        word = {None: "not measured", True: "met", False: "NOT MET"}[self.met]
        value = "" if self.value is None else f"{self.value:.3g} {self.unit}"
        return [self.what, value, f"{'at least' if self.at_least else 'at most'} {self.budget:.3g} {self.unit}", word]


TITLES = ["budget", "value", "", ""]


def lines(workloads: dict[str, Figures], size: str) -> Iterator[Line]:
    """Yield every budget with what a run measured, by workload and system."""
    for name in ("W1", "W2"):
        figures = workloads.get(name, {})
        yield _ratio(figures, f"{name} record, SQLite, against {BASE}", SQLITE, "record", 5)
        yield _against(figures, f"{name} record, SQLite, against Parquet", "record")
        yield _ratio(figures, f"{name} load_train against torch.load", SQLITE, "load_train", 4)
        yield _ratio(figures, f"{name} load_batch against torch.load", SQLITE, "load_batch", 18)
        yield _against(figures, f"{name} load_train against Parquet", "load_train")
        yield _share(figures, f"{name} bytes", 0.55)
        if name == "W1":  # an absolute time: of the full size only
            blocked = figures[BACKGROUND]["blocked"] if size == "full" and BACKGROUND in figures else None
            yield Line("W1 caller blocked, background", blocked, 0.12, False, "s")
        yield _ratio(figures, f"{name} record, PostgreSQL, against {BASE}", POSTGRES, "record", 2)
    for name in ("W3", "W3n"):
        figures = workloads.get(name, {})
        yield _ratio(figures, f"{name} record, SQLite, against {BASE}", SQLITE, "record", 1.5)
        yield _share(figures, f"{name} bytes", 0.27)
        for store in (SQLITE, POSTGRES):
            for operation in ("load_one", "record_one"):
                value = _samples(figures, name, size, store, operation)
                what = f"{name} peak memory, {operation.replace('_', ' ')}, {store.removeprefix('slime_store, ')}"
                yield Line(what, value, 2, False, "samples")
    yield _share(workloads.get("W4", {}), "W4 bytes", 1 / 7)


def start_lines() -> Iterator[Line]:
    """Yield the budgets of starting: importing the package, and the command line's help."""
    clean = "assert not {'torch', 'pandas'} & set(sys.modules)"
    code = (
        f"import sys, time; t = time.perf_counter(); import slime_store; t = time.perf_counter() - t; {clean}; print(t)"
    )
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(5)
    ]
    yield Line("import slime_store, without torch and pandas", statistics.median(seconds), 0.15, False, "s")
    command = [sys.executable, "-c", "from slime_store.cli import main; main()", "--help"]
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    yield Line("slime-store --help, the whole process", statistics.median(seconds), 0.35, False, "s")


def _ratio(figures: Figures, what: str, system: str, column: str, budget: float) -> Line:
    known = system in figures and BASE in figures
    return Line(what, ratio(figures, system, column) if known else None, budget, True, "x as fast")


def _against(figures: Figures, what: str, column: str) -> Line:
    known = SQLITE in figures and PARQUET in figures
    return Line(what, figures[PARQUET][column] / figures[SQLITE][column] if known else None, 1, True, "x as fast")


def _share(figures: Figures, what: str, budget: float) -> Line:
    known = SQLITE in figures and BASE in figures
    return Line(f"{what} of the dump's", ratio(figures, SQLITE, "bytes") if known else None, budget, False, "x")


def _samples(figures: Figures, workload: str, size: str, system: str, operation: str) -> float | None:
    """Return peak memory in samples: that is, in their routing tables as int32."""
    memory: dict[str, Any] = figures.get(system, {}).get("memory", {})
    if operation not in memory:
        return None
    shape = WORKLOADS[workload].sizes[size]
    n_tokens = shape.prompt_tokens + shape.response_tokens
    return float(memory[operation]) / (n_tokens * LAYERS * TOP_K * 4)
