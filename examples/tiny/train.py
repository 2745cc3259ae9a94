"""The training loop, in slime's order of calls: load, generate, train, save, update the engine's weights, evaluate."""

from __future__ import annotations

import torch

from slime_store.plugins.frameworks import load_object
from tiny.args import Args
from tiny.checkpoints import complete_checkpoint, last_checkpoint, load_checkpoint, save_checkpoint
from tiny.engine import Engine
from tiny.events import Event
from tiny.trainer import Trainer


def train(args: Args) -> None:
    """Train from the last checkpoint to the end. Nothing here knows whether there is a store."""
    args.read_custom_config()
    torch.manual_seed(args.seed)
    generate_rollout = load_object(args.rollout_function_path)
    data_source = load_object(args.data_source_path)(args)
    trainer = Trainer(args)
    args.engine = engine = Engine(args, trainer.policy)

    checkpoint = last_checkpoint(args)
    args.tell(Event("process begun", checkpoint))
    if checkpoint >= 0:
        trainer.load_state(load_checkpoint(args, checkpoint))
    data_source.load(checkpoint)
    engine.update_weights(trainer.policy)

    def evaluate(rollout_id: int) -> None:
        output = generate_rollout(args, rollout_id, data_source, evaluation=True)
        args.tell(Event("eval finished", rollout_id, output=output))

    if checkpoint < 0:
        evaluate(0)
    for rollout_id in range(checkpoint + 1, args.num_rollout):
        args.tell(Event("rollout begun", rollout_id))
        output = generate_rollout(args, rollout_id, data_source)
        args.tell(Event("rollout finished", rollout_id, output=output))

        trainer.train(output.samples)
        args.tell(Event("rollout trained", rollout_id))
        if _is_due(args, rollout_id, args.save_interval):
            save_checkpoint(args, rollout_id, trainer.state())
            data_source.save(rollout_id)
            complete_checkpoint(args, rollout_id)
            args.tell(Event("checkpoint saved", rollout_id))
        engine.update_weights(trainer.policy)
        if _is_due(args, rollout_id, args.eval_interval):
            evaluate(rollout_id)
    args.tell(Event("process ended", args.num_rollout - 1))


def _is_due(args: Args, rollout_id: int, interval: int) -> bool:
    return (rollout_id + 1) % interval == 0 or rollout_id + 1 == args.num_rollout
