"""Train a tiny transformer with GRPO, from scratch and on the CPU, and record every sample.

    python examples/tiny_grpo.py

The policy learns to reverse numbers of up to seven digits from a reward alone, in about half a minute.
The loop is slime's in small: the rollout function generates groups of samples with an inference engine,
``run.record_train`` makes them durable, the trainer takes a GRPO step, the engine gets the new weights,
and from time to time held-out prompts are answered and go to ``run.record_eval``. What the store knows
afterwards is printed, part of it by plain SQL, and compared with copies that were kept aside.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch

from slime_store import Run, SampleStore
from tiny import report
from tiny.args import Args
from tiny.control import Control
from tiny.engine import Engine
from tiny.progress import Progress
from tiny.rollout import DataSource, generate_rollout
from tiny.trainer import Trainer

QUICK = Args(num_rollout=24, rollout_batch_size=16, eval_interval=8, n_eval_prompts=16, max_difficulty=4)


def main(argv: list[str] | None = None) -> int:
    """Train, report, and return the exit code: 0, or 1 if the store or the learning failed."""
    options = _parser().parse_args(argv)
    args = replace(QUICK if options.quick else Args(), seed=options.seed)
    args.num_rollout = args.num_rollout if options.steps is None else max(1, options.steps)
    path: Path = options.store
    path.parent.mkdir(parents=True, exist_ok=True)
    bytes_before = report.store_bytes(path)

    torch.set_num_threads(1)  # the matrices are too small to share, and one thread adds up in one order
    with closing(SampleStore.open(path)) as store:
        run = store.run(_free_name(store), config=args.config())
        print(f"GRPO from scratch: reverse numbers of 1 to {args.max_difficulty} digits, reward only, no examples.")
        print(f"Run {run.name!r} goes to {'the existing' if bytes_before else 'the new'} store {path}.\n")
        control = train(args, run)

    with closing(SampleStore.open(path, read_only=True)) as store:
        fine = report.print_report(path, bytes_before, store.run(run.name, create=False), control)
    return 0 if fine else 1


def train(args: Args, run: Run) -> Control:
    """Run the training loop; return copies of what it recorded."""
    torch.manual_seed(args.seed)
    data_source, trainer, control = DataSource(args), Trainer(args), Control()
    args.engine = engine = Engine(args, trainer.policy)
    if args.start_rollout_id > 0:
        trainer.load(args.start_rollout_id - 1)
        data_source.load(args.start_rollout_id - 1)
    engine.update_weights(trainer.policy)

    def evaluate(rollout_id: int) -> dict[str, float]:
        output = generate_rollout(args, rollout_id, data_source, evaluation=True)
        control.keep_eval(rollout_id, output)
        run.record_eval(rollout_id, output, weight_version=str(engine.weight_version))
        metrics = output.metrics or {}
        return {name: metrics[f"{name}/accuracy"] for name in output.data}

    progress = Progress(args.num_rollout)
    scores = evaluate(0) if args.start_rollout_id == 0 else {}
    for rollout_id in range(args.start_rollout_id, args.num_rollout):
        output = generate_rollout(args, rollout_id, data_source)
        control.keep_train(rollout_id, output)
        run.record_train(rollout_id, output, state=data_source.state_dict())

        trainer.train(output.samples)
        if args.save is not None and _is_due(args, rollout_id, args.save_interval):
            trainer.save(rollout_id)
            data_source.save(rollout_id)
        engine.update_weights(trainer.policy)

        if _is_due(args, rollout_id, args.eval_interval):
            scores = evaluate(rollout_id)
        metrics = output.metrics or {}
        progress.show(rollout_id + 1, reward=metrics["reward"], accuracy=metrics["accuracy"], **scores)
    return control


def _is_due(args: Args, rollout_id: int, interval: int) -> bool:
    return (rollout_id + 1) % interval == 0 or rollout_id + 1 == args.num_rollout


def _free_name(store: SampleStore) -> str:
    taken = {info.name for info in store.runs()}
    return next(name for n in count(1) if (name := "tiny-grpo" if n == 1 else f"tiny-grpo-{n}") not in taken)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--store", type=Path, default=Path("runs/tiny_grpo.db"), help="database file; a rerun adds a run to it"
    )
    parser.add_argument("--steps", type=int, help="training steps, one rollout each")
    parser.add_argument("--seed", type=int, default=0, help="of weights, prompts and sampling")
    parser.add_argument("--quick", action="store_true", help="a few seconds, for tests")
    return parser


if __name__ == "__main__":
    sys.exit(main())
