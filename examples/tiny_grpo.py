"""Train a tiny transformer with GRPO, kill it with SIGKILL in the middle of a rollout, and lose nothing.

    python examples/tiny_grpo.py

The policy learns to reverse numbers of up to seven digits from a reward alone, from scratch and on the CPU. The
loop is slime's in small, and the store is in it as it is in slime: by two flags and a YAML file. Training runs in a
process of its own, which is killed when the store says that rollouts enough are complete behind the last checkpoint
and that the next one is half done; and is started again. Beside it, in a third process, the same training runs
without a store and without a crash. In the end both must have the same weights, bit for bit. What the store knows
afterwards is printed, part of it by plain SQL, and compared with what the trainer was handed.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from slime_store import SampleStore
from tiny import report, verdict
from tiny.args import Args
from tiny.experiment import SETTINGS, Experiment

QUICK = Args(
    num_rollout=24, rollout_batch_size=16, eval_interval=8, n_eval_prompts=16, max_difficulty=4, save_interval=6
)
FEWEST_STEPS = 12


def main(argv: list[str] | None = None) -> int:
    """Train, crash, resume, report; return the exit code: 0, or 1 if the store or the learning failed."""
    options = _parser().parse_args(argv)
    args = replace(QUICK if options.quick else Args(), seed=options.seed)
    if options.steps is not None:
        args.num_rollout = max(FEWEST_STEPS, options.steps)
        args.save_interval = max(1, args.num_rollout // 6)
    path: Path = options.store
    path.parent.mkdir(parents=True, exist_ok=True)
    bytes_before = report.store_bytes(path)
    with closing(SampleStore.open(path)) as store:
        name = _free_name(store)
    print(f"GRPO from scratch: reverse numbers of 1 to {args.max_difficulty} digits, reward only, no examples.")
    print(
        f"It goes to the {'existing' if bytes_before else 'new'} store, and needs two flags and a YAML file for that:\n"
    )
    for line in SETTINGS.format(url=path.resolve(), run=name).splitlines():
        print(f"    {line}")
    print(
        f"\nA checkpoint every {args.save_interval} steps. A second process trains the same, without store or crash.\n"
    )

    with TemporaryDirectory(prefix="tiny_grpo_") as directory:
        log = Path(directory) / "log"
        outcome = Experiment(args, path, name, Path(directory)).run()
        SampleStore.open(path).close()  # the last to close a store folds its write-ahead log in; a kill leaves it
        with closing(SampleStore.open(path, read_only=True)) as store:
            run = store.run(name, create=False)
            rewards = report.print_report(path, bytes_before, run, outcome.copies)
            crashed = verdict.print_crash(outcome, log)
            fine = verdict.print_verdict(outcome, run, rewards)
        report.print_next(path, name, max(outcome.copies.evals))
    return 0 if crashed and fine else 1


def _free_name(store: SampleStore) -> str:
    taken = {info.name for info in store.runs()}
    return next(name for n in count(1) if (name := "tiny-grpo" if n == 1 else f"tiny-grpo-{n}") not in taken)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--store", type=Path, default=Path("runs/tiny_grpo.db"), help="database file; a rerun adds a run to it"
    )
    parser.add_argument("--steps", type=int, help=f"training steps, one rollout each, at least {FEWEST_STEPS}")
    parser.add_argument("--seed", type=int, default=0, help="of weights, prompts and sampling")
    parser.add_argument("--quick", action="store_true", help="a few seconds, for tests")
    return parser


if __name__ == "__main__":
    sys.exit(main())
