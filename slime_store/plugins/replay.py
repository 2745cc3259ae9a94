"""Replay: recorded rollouts go to training, and no engine is needed."""

from __future__ import annotations

from typing import Any

from slime_store.plugins.guard import say
from slime_store.plugins.session import PluginSession, with_counters


def replayed_train(session: PluginSession, rollout_id: int) -> Any:
    """Return the recorded train rollout of this id; no sample is written.

    Raises:
        RolloutNotFoundError: it is not recorded; the error lists the nearest ids.
    """
    run = session.replayed
    output = run.load_train(rollout_id, sample_type=session.framework.sample_type)
    samples = output.samples
    n = session.settings.replay_groups
    if n is not None and n < len(samples):
        samples = samples[: (n + 1) // 2] + samples[len(samples) - n // 2 :]
    if run.name != session.settings.run:
        session.guard.run("note a replayed rollout", lambda: _note(session, rollout_id))
    say("rollout %d is replayed from run %r: %d groups", rollout_id, run.name, len(samples))
    return session.framework.train_output(samples, with_counters(output.metrics, {"store/replayed": 1}))


def replayed_eval(session: PluginSession, rollout_id: int) -> Any:
    """Return the recorded eval of this id.

    Raises:
        RolloutNotFoundError: it is not recorded; the error lists the nearest ids.
    """
    output = session.replayed.load_eval(rollout_id, sample_type=session.framework.sample_type)
    return session.framework.eval_output(output.data, with_counters(output.metrics, {"store/replayed": 1}))


def _note(session: PluginSession, rollout_id: int) -> None:
    """In the run that is replayed into, note which rollout it was handed."""
    newest = next(info for info in session.replayed.rollouts("train") if info.rollout_id == rollout_id)
    session.run.recovery.adopt(newest)
