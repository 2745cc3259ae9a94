"""The two training loops, in slime's order of calls, over a data source and a rollout function given by path."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from slime_store.plugins.frameworks import load_object
from slime_store.plugins.session import forget_sessions, session_of
from tests.plugins.fake_framework import fully_async
from tests.plugins.fake_framework.engine import engine
from tests.plugins.fake_framework.ledger import indexes, note_end, note_trained, write_whole
from tests.plugins.fake_framework.plugin import FAKE, HERE

DEFAULTS: dict[str, Any] = {
    "function": f"{HERE}.plugin.generate_rollout",
    "source": f"{HERE}.plugin.StoreSource",
    "loop": "sync",
    "n_rollouts": 7,
    "save_interval": 3,
    "eval_interval": None,
    "n_prompts": 11,
    "n_samples_per_prompt": 2,
    "rollout_batch_size": 4,
    "over_sampling_batch_size": 4,
    "rollout_seed": 3,
    "rollout_shuffle": True,
    "partial_rollout": False,
    "dynamic_filter": False,
    "fan_out": False,
    "group_rm": False,
    "concurrency": 6,
    "interrupt": False,
    "token_seconds": 0.0,
    "crash": {},
    "settle": False,
    "real": None,
    "lr": 1.0,
    "slime_store_run": "run",
    "slime_store_mode": "resume",
}


def make_args(directory: Path, **options: Any) -> Namespace:
    given = {**DEFAULTS, **options, "directory": str(directory), "save": str(directory / "checkpoints")}
    given.setdefault("slime_store_url", str(directory / "store.db"))
    given.setdefault("slime_store_spool_dir", str(directory / "spool"))
    return Namespace(**given)


def train(args: Namespace) -> None:
    """Train from the last checkpoint on, or crash on the way."""
    Path(args.save).mkdir(parents=True, exist_ok=True)
    engine.crash_at_token = args.crash.get("token")
    if args.settle and _has_store(args):
        engine.before_crash = lambda: session_of(args, FAKE).flush()
    source = load_object(args.source)(args)
    checkpoint = last_checkpoint(args)
    source.load(checkpoint)
    _loop(args, source, checkpoint + 1)
    note_end(args, n_generated=engine.n_generated, **_what_is_left(args, source))
    if _has_store(args):
        forget_sessions()


def _what_is_left(args: Namespace, source: Any) -> dict[str, Any]:
    """Return how many groups were handed out, and which of them are not trained yet."""
    if args.real:  # its loop keeps them where only the plug-in finds them
        with source._lock:
            state = source.state()
        left = [*state.get("in_flight", ()), *state.get("buffer", ())]
        return {"remaining": indexes(left), "handed_out": state["sample_group_index"]}
    under_way = fully_async.still_under_way()
    inner = getattr(source, "_inner", source)
    left = [*getattr(source, "_again", ()), *getattr(inner, "buffer", ())]
    return {"remaining": under_way + indexes(left), "handed_out": getattr(inner, "sample_group_index", None)}


def _has_store(args: Namespace) -> bool:
    return str(args.source).rpartition(".")[2].startswith("Store")


def last_checkpoint(args: Namespace) -> int:
    file = Path(args.save) / "latest.json"
    return int(json.loads(file.read_text())) if file.exists() else -1


def _loop(args: Namespace, source: Any, start: int) -> None:
    rollout = load_object(args.function)

    def generate(number: int) -> Any:
        args.rollout_id = number
        output = rollout(args, number, source)
        _crash_here(args, "after rollout", number)
        return output

    early = generate(start) if args.loop == "async" and start < args.n_rollouts else None
    for number in range(start, args.n_rollouts):
        output = early if args.loop == "async" else generate(number)
        if args.loop == "async" and number + 1 < args.n_rollouts:
            early = generate(number + 1)  # the manager works its calls off in this order: before the save below
        note_trained(args, number, getattr(output, "samples", output), getattr(output, "metrics", None))
        if _has_store(args):
            session_of(args, FAKE).recorder.flush()  # real training takes longer than storing what it trains on
        if (number + 1) % args.save_interval == 0:
            write_whole(Path(args.save) / "latest.json", json.dumps(number))
            _crash_here(args, "before the source is saved", number)
            source.save(number)
            _crash_here(args, "after a checkpoint", number)
        if args.eval_interval and (number + 1) % args.eval_interval == 0:
            rollout(args, number, source, evaluation=True)


def _crash_here(args: Namespace, point: str, number: int) -> None:
    if args.crash.get("point") == point and args.crash["rollout"] == number:
        engine.crash()
