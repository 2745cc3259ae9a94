"""Peak memory of each operation, in a child process: ``python -m benchmarks.memory`` is that child.

The figure is the high-water mark of the resident size (Linux, ``VmHWM``) less the resident size before the operation.
Both are the kernel's, so arrays, Python objects and compressors all count; what a load returns is part of it. A
database server's memory is not. Each operation is done at a tiny size first, so that imports and caches do not count.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import open_systems
from benchmarks.systems import Place, System
from benchmarks.workloads import WORKLOADS, Workload, samples_of
from slime_store import RolloutFnTrainOutput

OPERATIONS = ("record", "load_train", "load_batch", "record_one", "load_one", "walk")
"""What is measured; ``record_one`` is a rollout of one sample, ``walk`` goes through a rollout sample by sample."""

_TINY, _FULL, _ONE = 1_000_001, 1_000_002, 1_000_003  # rollout ids


def measure_memory(workload: Workload, size: str, place: Place, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return peak extra bytes by system and operation, measured in a child process; nothing but on Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return {}
    with tempfile.TemporaryDirectory(dir=place.directory) as directory:
        command = [sys.executable, "-m", "benchmarks.memory", workload.name, size, directory, *names]
        if place.postgres is not None:
            command += ["--postgres", place.postgres]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def peaks(workload: Workload, size: str, place: Place, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return peak extra bytes by system and operation, measured in this process."""
    tiny, sizes = workload.make(workload.sizes["tiny"]), workload.sizes
    systems = open_systems(workload, place, names)
    found: dict[str, dict[str, int]] = {system.name: {} for system in systems}
    for system in systems:
        for work in _operations(system, _TINY, _TINY, tiny, 0, 0).values():
            work()
    # writing first: what a rollout of objects leaves of the heap must not count when reading
    output = workload.make(sizes[size])
    samples = samples_of(output)
    one = RolloutFnTrainOutput([[samples[0]]])
    middle = (len(output.samples) // 2) * len(output.samples[0])
    for system in systems:
        for name, work in _operations(system, _FULL, _ONE, output, 0, 0, one).items():
            if name.startswith("record"):
                found[system.name][name] = peak(work)
    group_index = samples[middle].group_index
    del output, samples, one
    for system in systems:
        for name, work in _operations(system, _FULL, _ONE, None, middle, group_index).items():
            if not name.startswith("record"):
                found[system.name][name] = peak(work)
        system.forget(_FULL)
        system.close()
    return found


def _operations(
    system: System, number: int, number_one: int, output: Any, position: int, group_index: int, one: Any = None
) -> dict[str, Callable[[], Any]]:
    operations = {
        "record": lambda: system.record(number, output),
        "record_one": lambda: system.record(number_one, one),
        "load_train": lambda: system.load_train(number),
        "load_batch": lambda: system.load_batch(number),
        "load_one": lambda: system.load_one(number, position, group_index),
        "walk": lambda: system.walk(number),
    }
    if one is None:
        del operations["record_one"]
    return operations


def peak(work: Callable[[], Any]) -> int:
    """Return by how many bytes the resident size rose above what it was, at its highest."""
    gc.collect()
    _trim()
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = _status("VmRSS")
    work()
    return max(0, _status("VmHWM") - before)


def _trim() -> None:
    """Give what is free of the heap back to the system; only glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise LookupError(key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("size")
    parser.add_argument("directory", type=Path)
    parser.add_argument("systems", nargs="+")
    parser.add_argument("--postgres")
    options = parser.parse_args()
    place = Place(options.directory, options.postgres)
    print(json.dumps(peaks(WORKLOADS[options.workload], options.size, place, options.systems)))


if __name__ == "__main__":
    main()
