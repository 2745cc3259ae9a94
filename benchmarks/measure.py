"""Taking turns: every system does the same to the same rollout, one after the other, several times."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.systems import SYSTEMS, Place, System
from benchmarks.workloads import Workload, samples_of

SECONDS = ("record", "blocked", "load_train", "load_batch", "load_one")
"""What is timed. ``blocked`` is how long the caller of record waits: less than ``record`` in the background only."""

PROCESSOR = ("record", "load_train", "load_batch")
"""What the processor time is taken of, as ``cpu_record`` and so on: it says more than seconds on a busy machine."""

Figures = dict[str, dict[str, Any]]
"""By system, by column."""


def measure(workload: Workload, size: str, place: Place, names: Iterable[str], repeat: int | None = None) -> Figures:
    """Return the medians of every system's turns, in seconds, and the bytes of one rollout.

    The first turn warms up and is not counted; bytes are its, when nothing was deleted yet. Rollouts with media are
    deleted after each turn, since they are large; of text, stores fill up, as they do in use.
    """
    output = workload.make(workload.sizes[size])
    samples = samples_of(output)
    middle = samples.index(next(s for s in samples if s.group_index == samples[len(samples) // 2].group_index))
    systems = open_systems(workload, place, names)
    turns: dict[str, list[dict[str, float]]] = {system.name: [] for system in systems}
    n_bytes: dict[str, int] = {}
    for number in range(1 + (repeat or workload.repeat[size])):
        tell(f"{workload.name}, turn {number}")
        shift = number % len(systems)
        for system in systems[shift:] + systems[:shift]:
            times = _turn(system, number, output, (middle, samples[middle].group_index), n_bytes)
            if number:
                turns[system.name].append(times)
            if workload.media:
                system.forget(number)
    for system in systems:
        system.close()
    return {
        name: {key: statistics.median(turn[key] for turn in taken) for key in taken[0]} | {"bytes": n_bytes[name]}
        for name, taken in turns.items()
    }


def open_systems(workload: Workload, place: Place, names: Iterable[str]) -> list[System]:
    """Return those of the named systems that are installed and can keep the workload."""
    kinds = [SYSTEMS[name] for name in names]
    return [
        kind(place)
        for kind in kinds
        if kind.is_available(place)
        and (kind.holds_media or not workload.media)
        and (kind.holds_huge or not workload.is_huge)
    ]


def tell(what: str) -> None:
    """Say on the terminal, and nowhere else, how far it is."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what} ...", end="", file=sys.stderr, flush=True)


def _turn(system: System, number: int, output: Any, one: tuple[int, int], n_bytes: dict[str, int]) -> dict[str, float]:
    gc.collect()  # nobody pays for what others left behind
    times: dict[str, float] = {}
    times["blocked"] = _timed("record", lambda: system.record(number, output), times) or times["record"]
    n_bytes.setdefault(system.name, system.size(number))
    _timed("load_train", lambda: system.load_train(number), times)
    _timed("load_batch", lambda: system.load_batch(number), times)
    _timed("load_one", lambda: system.load_one(number, *one), times)
    return times


def _timed(what: str, work: Callable[[], Any], times: dict[str, float]) -> float | None:
    """Note the seconds that work took; return its result if it is a number, anything larger is let go of."""
    start, start_cpu = time.perf_counter(), time.process_time()
    result = work()
    times[what] = time.perf_counter() - start
    if what in PROCESSOR:
        times[f"cpu_{what}"] = time.process_time() - start_cpu
    return result if isinstance(result, float) else None
