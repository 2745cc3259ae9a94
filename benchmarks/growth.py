"""``python -m benchmarks.growth [--rollouts N ...] [--steps]``: what grows with a run, and what must not.

Workload W5 (1,024 samples a rollout, few tokens) at several lengths of a run: the time of recording and loading one
more rollout, and of each question. With ``--steps``: the bytes that one step of 1,024 samples x 8k tokens takes, whole
and pruned, and so what a run of 10,000 steps takes.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import w5
from benchmarks.budgets import Line
from benchmarks.workloads import Size, text_rollout
from slime_store import Run, Sample, SampleFilter, SampleStore
from slime_store.dataframes import metrics_df, prompts_df, rollouts_df, samples_df, weight_versions_df

STEP = Size(128, 8, 512, 7680)
N_STEPS = 10_000
LENGTHS = {"full": 1000, "quick": 200, "tiny": 2}
_TURNS = 5


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[10, 100, 1000], metavar="N")
    parser.add_argument("--steps", action="store_true", help="measure the bytes of a long run instead")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        if options.steps:
            print_steps(Path(directory), STEP, n_rollouts=3)
        else:
            print_growth(Path(directory) / "growth.db", sorted(options.rollouts))


def print_growth(path: Path, lengths: list[int]) -> None:
    """Print a line for each operation, with its median time in milliseconds at each length of the run."""
    columns: list[dict[str, float]] = []
    with SampleStore.open(path) as store:
        run = store.run(w5.RUN)
        for length in lengths:
            w5.record(run, range(len(run.rollouts()), length))
            columns.append({name: _median(work) for name, work in operations(run, length).items()})
    print(f"{'milliseconds, median of ' + str(_TURNS):44}" + "".join(f"{length:>10,}" for length in lengths))
    for name in columns[0]:
        print(f"{name:44}" + "".join(f"{1000 * column[name]:10.1f}" for column in columns))


def budget_lines(size: str) -> list[Line]:
    """Return the budgets of a store of many rollouts, measured: 1,000 of them in the full size."""
    length = LENGTHS[size]
    filtered = SampleFilter(kind="train", status="truncated", reward_min=1.0)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory, closing_stores(Path(directory)) as runs:
        few, many = runs
        w5.record(few, range(1))
        w5.record(many, range(length))
        loads = [[w5.timed(lambda: run.load_train(0))[0] for run in runs] for _ in range(2 * _TURNS)]  # noqa: B023
        ratio = statistics.median(turn[1] for turn in loads) / statistics.median(turn[0] for turn in loads)
        versions = _median(lambda: weight_versions_df(many))
        page = _median(lambda: samples_df(many, filtered, limit=100))
    of = f"of {length:,} x 1,024"
    return [
        Line(f"W5 {of}: weight_versions_df", versions, 0.5, False, "s"),
        Line(f"W5 {of}: a filtered page of samples_df", page, 0.1, False, "s"),
        Line(f"W5 {of}: load_train against a store of one", ratio, 1.2, False, "x"),
    ]


@contextlib.contextmanager
def closing_stores(directory: Path) -> Iterator[list[Run]]:
    """Give an empty run in each of two stores."""
    with SampleStore.open(directory / "few.db") as few, SampleStore.open(directory / "many.db") as many:
        yield [few.run(w5.RUN), many.run(w5.RUN)]


def operations(run: Run, length: int) -> dict[str, Callable[[], Any]]:
    """Return what is measured in a run of this many rollouts."""
    samples = [Sample(index=i, group_index=i // 8, label="7") for i in range(w5.PROMPTS * w5.SAMPLES_PER_PROMPT)]
    rollout = w5.output(samples, length)
    middle = length // 2
    page = SampleFilter(kind="train", status="truncated")
    [prompt] = samples_df(run, SampleFilter(rollout_ids=middle), columns=["prompt_id"], limit=1)["prompt_id"]
    return {
        "record one rollout again": lambda: run.record_train(0, rollout, on_conflict="replace"),
        "load_train": lambda: run.load_train(middle, sample_type=Sample),
        "load_batch": lambda: run.load_batch(middle),
        "weight_versions_df": lambda: weight_versions_df(run),
        "samples_df, first 100 truncated": lambda: samples_df(run, page, limit=100),
        "samples_df, one rollout": lambda: samples_df(run, SampleFilter(rollout_ids=middle)),
        "samples_df, one prompt": lambda: samples_df(run, SampleFilter(prompt_id=prompt)),
        "prompts_df, one prompt": lambda: prompts_df(run, SampleFilter(prompt_id=prompt)),
        "rollouts_df, all": lambda: rollouts_df(run),
        "metrics_df, all": lambda: metrics_df(run),
        "run.resume()": lambda: run.resume(),
    }


def print_steps(directory: Path, size: Size, n_rollouts: int) -> None:
    """Print the bytes of a step of this size, whole and pruned. Its uniform token ids do not compress."""
    output = text_rollout(size)
    with SampleStore.open(directory / "steps.db") as store:
        run = store.run("steps")
        empty = store.stats().size_bytes
        for number in range(n_rollouts):
            run.record_train(number, output)
        whole = (store.stats().size_bytes - empty) / n_rollouts
        run.prune(keep_arrays_last=0)
        store.vacuum()
        pruned = (store.stats().size_bytes - empty) / n_rollouts
    n_samples = size.prompts * size.samples_per_prompt
    print(f"a step, {n_samples:,} samples, {size.n_tokens:,} tokens: {whole / 1e6:.1f} MB, pruned {pruned / 1e6:.2f}")
    keeping = (whole - pruned) * 20
    kept = pruned * N_STEPS + keeping
    print(f"{N_STEPS:,} steps: {whole * N_STEPS / 1e9:,.0f} GB; pruned to 20: {kept / 1e9:,.1f} GB")


def _median(work: Callable[[], Any]) -> float:
    return statistics.median(w5.timed(work)[0] for _ in range(_TURNS))


if __name__ == "__main__":
    main()
